package script

import (
	"fmt"
	"strings"
)

// expr returns an expression that does not fail, of kind k.
func (g *generator) expr(k kind) string {
	if g.nested > 2 {
		return g.simple(k)
	}
	g.nested++
	defer func() { g.nested-- }()
	if g.chance(3) {
		return g.simple(k)
	}
	if g.chance(6) && k != function {
		return g.logical(k)
	}
	switch k {
	case number:
		return g.number()
	case text:
		return g.text()
	case array:
		return g.array()
	case record:
		key := g.key()
		if strings.HasPrefix(key, "v") { // the value may call a function that changes it
			key = "tostring(" + key + ")"
		}
		return fmt.Sprintf("{%s, a = %s, [%s] = %s}", g.expr(number), g.expr(anything), key, g.expr(number))
	case anything:
		return g.expr(pick(g, number, number, text, text, array, anything))
	}
	return g.simple(k)
}

var numerals = []string{
	"0", "1", "2", "3", "7", "10", "-1", "-3", "0.5", "-0.25", "1/3", "1e15", "123456789012", "1e-7", "2^53", "1e300", "0x10", "007",
	"1/0", "-1/0", "0/0", "-(0/0)", "3e0", ".5", "5.", "4294967297", "-2147483649", "1e20", "0xffffffffff", "99999999999999.5",
}

var texts = []string{
	"''", "'a'", "'abc'", "'hello world'", "'x=1, y=22'", "'10'", "' 7 '", "'0x1F'", "'1e2'", "'-3.5'", "'010'", "'nan'", "'-inf'", "'1 2'", "'0b11'",
	`'a\0b'`, `'\r\n\t'`, "'%d'", "'[1,2]'", "[[a]b]]", "'ABC'", "'/\\\"'", "'\\195\\169'", "'1e400'", "'0x'", "'5.'", "'.5'", "'-'", "'infinity'",
}

// simple returns a variable or constant of a kind.
func (g *generator) simple(k kind) string {
	if name, ok := g.named(k); ok && !g.chance(3) {
		return name
	}
	switch k {
	case number:
		return g.parenthesized(pick(g, numerals...))
	case text:
		return g.parenthesized(pick(g, texts...))
	case array:
		return pick(g, "{}", "{1}", "{1, 2, 3}", "{3, 1, 2}", "{0.5, -1, 1e15, 7, 2}")
	case record:
		return pick(g, "{}", "{a = 1}", "{b = 'x', 1}")
	case function:
		return "function(a, b, ...) return lim(a), b end"
	}
	if g.vararg && g.chance(4) {
		return pick(g, "(...)", "select('#', ...)", "{...}")
	}
	return pick(g, "nil", "true", "false", g.simple(number), g.simple(text))
}

func (g *generator) parenthesized(e string) string { return "(" + e + ")" }

func (g *generator) condition() string {
	switch g.IntN(6) {
	case 0:
		return g.expr(anything)
	case 1:
		return fmt.Sprintf("not %s", g.expr(anything))
	case 2:
		return fmt.Sprintf("%s %s %s", g.expr(anything), pick(g, "==", "~="), g.expr(anything))
	case 3:
		return fmt.Sprintf("%s %s %s", g.expr(text), pick(g, "<", "<=", ">", ">=", "=="), g.expr(text))
	case 4:
		if g.nested < 3 {
			g.nested++
			defer func() { g.nested-- }()
			return fmt.Sprintf("(%s) %s (%s)", g.condition(), pick(g, "and", "or"), g.condition())
		}
	}
	return fmt.Sprintf("%s %s %s", g.expr(number), pick(g, "<", "<=", ">", ">=", "==", "~="), g.expr(number))
}

// logical returns an expression with one of two values of a kind.
func (g *generator) logical(k kind) string {
	if k == anything {
		return fmt.Sprintf("(%s %s %s)", pick(g, g.condition(), g.expr(anything)), pick(g, "and", "or"), pick(g, "("+g.condition()+")", g.expr(anything)))
	}
	return fmt.Sprintf("((%s) and %s or %s)", g.condition(), g.expr(k), g.expr(k))
}

func (g *generator) callOf(f string) string {
	args := g.expr(anything) + ", " + g.expr(anything)
	if g.vararg && g.chance(2) {
		args += ", ..."
	}
	return fmt.Sprintf("%s(%s)", f, args)
}

func (g *generator) number() string {
	N := func() string { return g.expr(number) }
	S := func() string { return g.expr(text) }
	switch g.IntN(15) {
	case 0, 1, 2:
		operator := pick(g, "+", "-", "*", "/")
		// gopher-lua drops the sign of a zero, and Lua takes a constant 0 for an earlier -0.
		return fmt.Sprintf("nz(nz(%s) %s %s)", N(), operator, N())
	case 3, 4:
		return fmt.Sprintf("(%s %% %s)", N(), N())
	case 5:
		return fmt.Sprintf("(%s ^ %s)", pick(g, "2", "10", "-2", "3", "0.5", "0", "(1/0)"), pick(g, "0", "1", "2", "3", "-1", "10", "(-1/0)", "0.5", "'2'"))
	case 6:
		return fmt.Sprintf("nz(%s %s %s)", pick(g, N(), "'10'", "' 7 '"), pick(g, "+", "-", "*", "/", "%"), pick(g, "'3'", "'0x10'", "'1e2'", "'-2.5'", "'010'"))
	case 7:
		return fmt.Sprintf("-%s", pick(g, "nz("+N()+")", "('5')", "(' 0x1F ')"))
	case 8:
		return "#" + g.parenthesized(pick(g, S(), g.expr(array)))
	case 9, 10:
		return g.math()
	case 11:
		return fmt.Sprintf("(tonumber(%s%s) or %s)", pick(g, S(), N()), pick(g, "", ", 10", ", 16", ", 2", ", 36", ", '8'"), N())
	case 12:
		if f, ok := g.named(function); ok {
			return fmt.Sprintf("(%s)", g.callOf(f))
		}
	case 13:
		return pick(g,
			fmt.Sprintf("(string.byte(%s, %s) or 0)", S(), N()), fmt.Sprintf("(string.find(%s, %s, %s, true) or -1)", S(), S(), N()),
			fmt.Sprintf("string.len(%s)", pick(g, S(), N())),
			fmt.Sprintf("select('#', string.byte(%s, %s, %s))", S(), N(), N()))
	case 14:
		if name, ok := g.named(array); ok {
			return fmt.Sprintf("(%s[%s] or %s)", name, N(), N())
		}
	}
	return N()
}

func (g *generator) math() string {
	N := func() string { return g.expr(number) }
	f := pick(g, "abs", "ceil", "floor", "sqrt", "modf", "max", "min", "fmod", "exp", "log", "pow")
	switch f {
	case "modf":
		return pick(g, fmt.Sprintf("(math.modf(%s))", N()), fmt.Sprintf("select(2, math.modf(%s))", N()))
	case "max", "min":
		return fmt.Sprintf("math.%s(%s, %s, %s)", f, N(), pick(g, N(), "'7'"), N())
	case "fmod":
		return fmt.Sprintf("math.fmod(%s, %s)", N(), N())
	case "pow":
		return fmt.Sprintf("near(nz(math.pow(%s, lim(%s))))", N(), N())
	case "exp", "log":
		return fmt.Sprintf("near(math.%s(lim(%s)))", f, N())
	}
	return fmt.Sprintf("math.%s(%s)", f, N())
}

func (g *generator) text() string {
	N := func() string { return g.expr(number) }
	S := func() string { return g.expr(text) }
	C := func() string { return "clip(" + S() + ")" } // for functions that make a text longer
	switch g.IntN(10) {
	case 0, 1, 2:
		return fmt.Sprintf("clip(%s .. %s .. %s)", pick(g, S(), N()), pick(g, S(), N()), S())
	case 3:
		return fmt.Sprintf("string.sub(%s, %s%s)", S(), N(), pick(g, "", ", "+N()))
	case 4:
		return fmt.Sprintf("clip(string.rep(%s, lim(%s)))", S(), N())
	case 5:
		return fmt.Sprintf("string.format('%%%s%s', %s)", pick(g, "", "5", "-6", "05", "+", " ", ".3", "8.2", "-+8.3", "+05", ".0", "."), pick(g, "d", "i", "u", "x", "X", "e", "f", "g", "s"), N())
	case 6:
		return fmt.Sprintf("string.format('<%%%ss|%%s>', %s, %s)", pick(g, "", "5", "-5", ".2", "8.3"), C(), C())
	case 7:
		return fmt.Sprintf("string.%s(%s)", pick(g, "upper", "lower", "reverse"), pick(g, S(), N()))
	case 8:
		return fmt.Sprintf("tostring(%s)", pick(g, N(), S(), "nil", "true"))
	case 9:
		return pick(g,
			fmt.Sprintf("redis.call('echo', %s)", pick(g, S(), N(), N())),
			fmt.Sprintf("(redis.call('get', 'k%d') or 'none')", 1+g.IntN(4)),
			fmt.Sprintf("redis.call('set', 'k%d', tostring(%s)).ok", 1+g.IntN(4), pick(g, S(), N())),
			fmt.Sprintf("redis.status_reply(%s).ok", S()), fmt.Sprintf("redis.error_reply(%s).err", S()))
	}
	return S()
}

func (g *generator) array() string {
	N := func() string { return g.expr(number) }
	return pick(g,
		fmt.Sprintf("{%s, %s}", N(), N()), fmt.Sprintf("{%s, %s, %s, nil}", N(), N(), N()),
		fmt.Sprintf("{unpack(%s)}", g.expr(array)), fmt.Sprintf("{string.byte(%s, 1, -1)}", g.expr(text)),
		fmt.Sprintf("{[1] = %s, [2] = %s}", N(), N()))
}

// risky returns an expression that may fail, or whose values may be of any kind.
func (g *generator) risky() string {
	A := func() string { return g.expr(anything) }
	switch g.IntN(10) {
	case 0:
		operator := pick(g, "+", "-", "*", "/", "%", "^", "..", "<", "<=", ">", "==")
		if strings.Contains("+-*/^", operator) {
			// The last digit of ^ in Go is wrong more often than in C.
			return fmt.Sprintf("near(nz(nz(%s) %s %s))", A(), operator, A())
		}
		return fmt.Sprintf("%s %s %s", A(), operator, A())
	case 1:
		return fmt.Sprintf("%s%s", pick(g, "-nz", "#", "not "), g.parenthesized(A()))
	case 2:
		return fmt.Sprintf("string.%s(%s, %s, %s)", pick(g, "sub", "byte", "len", "upper", "lower", "char", "reverse"), A(), A(), A())
	case 3:
		return fmt.Sprintf("math.%s(%s, %s)", pick(g, "floor", "ceil", "max", "min", "fmod", "modf", "abs", "sqrt"), A(), A())
	case 9:
		return pick(g,
			fmt.Sprintf("string.rep(%s, %s)", A(), pick(g, "lim("+g.expr(number)+")", "nil", "true", "{}", "'3'", "")), fmt.Sprintf("string.lower(%s)", A()),
			fmt.Sprintf("near(nz(math.pow(%s, %s)))", A(), A()),
			fmt.Sprintf("type(math.random(%s))", pick(g, "", A(), A()+", "+A(), "1, 2, 3")),
		)
	case 4:
		return g.mget()
	case 5:
		return fmt.Sprintf("(%s)%s", A(), pick(g, "[1]", ".x", "()", "['y']", ":rep(2)"))
	case 6:
		return pick(g,
			fmt.Sprintf("tonumber(%s, %s)", A(), A()), fmt.Sprintf("tostring(%s)", g.expr(number)), fmt.Sprintf("select(%s, %s, %s)", A(), A(), A()),
			fmt.Sprintf("unpack(%s, %s, lim(%s))", A(), A(), A()), fmt.Sprintf("error(%s)", A()), fmt.Sprintf("assert(%s, %s)", A(), A()),
			fmt.Sprintf("rawequal(%s, %s)", A(), A()), fmt.Sprintf("type(%s)", A()), fmt.Sprintf("ipairs(%s)", A()), fmt.Sprintf("setmetatable(%s, nil)", g.expr(number)),
			fmt.Sprintf("table.concat(%s, %s, %s)", pick(g, A(), g.expr(array)), A(), A()), fmt.Sprintf("table.insert(%s, lim(%s), %s)", pick(g, g.expr(text), "{unpack("+g.expr(array)+")}"), A(), A()))
	case 7:
		return fmt.Sprintf("string.format(%s, %s, %s)", pick(g, "'%d %s'", "'%5.1f|%x'", "'%i%s'", A()), A(), A())
	}
	return pick(g,
		fmt.Sprintf("redis.%s('%s', %s)", pick(g, "call", "pcall"), pick(g, "echo", "nocmd"), A()),
		fmt.Sprintf("redis.pcall('set', 'k1', (%s))", A()), "redis.call('incr', 'k1')", "redis.call('get', 'k2')", "redis.pcall('incr', 'k3')", "redis.call()",
		fmt.Sprintf("redis.%s(%s)", pick(g, "error_reply", "status_reply"), A()))
}

// mget returns a call of a command that replies with an array.
func (g *generator) mget() string {
	return fmt.Sprintf("redis.%s('mget', 'k%d', 'k%d')", pick(g, "call", "pcall"), 1+g.IntN(4), 1+g.IntN(4))
}

// reply returns an expression for the reply of the program.
func (g *generator) reply(depth int) string {
	inner := func() string { return g.reply(depth + 1) }
	which := g.IntN(15)
	if depth > 3 {
		which %= 8
	}
	switch which {
	case 0:
		return g.expr(number)
	case 1:
		return g.expr(text)
	case 2:
		return g.expr(array)
	case 3, 4, 5, 6, 7:
		return pick(g, "true", "false", "nil", "put")
	case 8, 9:
		return fmt.Sprintf("{%s, %s, %s}", inner(), inner(), inner())
	case 10:
		return fmt.Sprintf("{%s, x = %s}", inner(), inner())
	case 11:
		return fmt.Sprintf("{ok = %s}", g.expr(text))
	case 12:
		return fmt.Sprintf("{err = %s}", g.expr(text))
	case 13:
		return g.mget()
	}
	return fmt.Sprintf(pick(g, "redis.error_reply(%s)", "redis.status_reply(%s)", "redis.pcall('nocmd', %s)"), g.expr(text))
}
