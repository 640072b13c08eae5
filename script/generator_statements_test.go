package script

import (
	"fmt"
	"strings"
)

// declare writes a declaration of one variable.
func (g *generator) declare(k kind) *node {
	name := g.fresh()
	if k == function {
		if g.depth > 3 {
			k = anything
		} else {
			return g.declareFunction(name)
		}
	}
	n := line("local %s = %s", name, g.expr(k))
	g.vars = append(g.vars, variable{name, k})
	return n
}

func (g *generator) declareFunction(name string) *node {
	g.note("closure")
	recursive := g.chance(2)
	result := func() string { return g.expr(number) + ", " + g.expr(anything) }
	n := g.functionOf(result)
	if recursive {
		n.open = "local function " + name + n.open
	} else {
		n.open = "local " + name + " = function" + n.open
	}
	g.vars = append(g.vars, variable{name, function})
	return n
}

func (g *generator) statement() *node {
	if g.depth > 3 {
		return pick(g, g.assignOne, g.assignMany, g.putValue, g.declareMany)()
	}
	return pick(g,
		g.assignOne, g.assignMany, g.assignMany, g.assignMany, g.assignMany, g.declareMany, g.declareMany,
		g.putValue, g.putValue, g.putValue, g.tryValue, g.tryValue, g.tryValue, g.tryBlock,
		g.forNumbers, g.forNumbers, g.forNumbers, g.forIterator, g.whileLoop, g.repeatLoop, g.ifElse, g.ifElse,
		g.doBlock, g.newFunction, g.newFunction, g.useTable, g.useTable, g.useRecord, g.closures, g.metatable,
		g.callStatement, g.method, g.recursion, g.wrapper,
	)()
}

// target returns a variable or field of a kind that can be assigned to.
func (g *generator) target(k kind) string {
	switch g.IntN(4) {
	case 0:
		if name, ok := g.named(record); ok {
			g.note("assignment to a field")
			return fmt.Sprintf("%s[%s]", name, g.key())
		}
	case 1:
		if name, ok := g.named(array); ok && k == number {
			g.note("assignment to an element")
			return fmt.Sprintf("%s[%s]", name, "1")
		}
	}
	if name, ok := g.named(k); ok {
		return name
	}
	name, _ := g.named(record)
	return name + "." + pick(g, "a", "b", "c")
}

// index returns an existing index of an array, or the next one. It calls no function of the
// program, which might shorten the array: Lua leaves the length of an array with a hole open.
func (g *generator) index(name string) string {
	return fmt.Sprintf("1 + math.floor(math.abs(lim(%s))) %% (#%s + 1)", g.simple(number), name)
}

func (g *generator) key() string {
	switch g.IntN(6) {
	case 0:
		return fmt.Sprintf("%q", pick(g, "a", "b", "c"))
	case 1:
		if name, ok := g.named(text); ok {
			return name
		}
	case 2:
		return "tostring(" + g.expr(number) + ")"
	case 3:
		return fmt.Sprint(g.IntN(5) - 1)
	}
	return "lim(" + g.expr(number) + ")"
}

func (g *generator) assignOne() *node {
	g.note("assignment")
	k := g.kindOf()
	if k == function {
		k = number
	}
	return line("%s = %s", g.target(k), g.expr(k))
}

// assignMany writes an assignment of several values, often a permutation of the targets.
func (g *generator) assignMany() *node {
	g.note("assignment of several")
	var targets, values []string
	n := 2 + g.IntN(3)
	kinds := make([]kind, n)
	for i := range n {
		kinds[i] = pick(g, number, number, text, anything)
		if g.chance(3) && i > 0 {
			kinds[i] = kinds[i-1]
		}
		targets = append(targets, g.target(kinds[i]))
	}
	for i := range n {
		v := g.expr(kinds[i])
		if g.chance(2) {
			j := g.IntN(n)
			if kinds[j] == kinds[i] && !strings.Contains(targets[j], "[") {
				v = targets[j]
				g.note("exchange of variables")
			}
		}
		values = append(values, v)
	}
	f, ok := g.named(function)
	if ok && kinds[n-1] == anything && kinds[n-2] == number {
		g.note("assignment of a call's values")
		values = append(values[:n-2], g.callOf(f))
	} else if kinds[n-1] == anything && g.chance(3) {
		g.note("assignment of fewer values")
		values = values[:max(1, len(values)-1)]
	} else if g.chance(8) {
		g.note("assignment of more values")
		values = append(values, g.expr(anything))
	}
	return line("%s = %s", strings.Join(targets, ", "), strings.Join(values, ", "))
}

func (g *generator) declareMany() *node {
	g.note("declaration of several")
	var names, values []string
	var declared []variable
	for range 1 + g.IntN(4) {
		k := pick(g, number, text, anything, number)
		v := variable{g.fresh(), k}
		declared = append(declared, v)
		names, values = append(names, v.name), append(values, g.expr(k))
	}
	if g.chance(3) {
		if f, ok := g.named(function); ok {
			declared = append(declared, variable{g.fresh(), number}, variable{g.fresh(), anything}, variable{g.fresh(), anything})
			for _, v := range declared[len(declared)-3:] {
				names = append(names, v.name)
			}
			values = append(values, g.callOf(f))
			g.note("declaration of a call's values")
		}
	}
	n := line("local %s = %s", strings.Join(names, ", "), strings.Join(values, ", "))
	g.vars = append(g.vars, declared...)
	return n
}

func (g *generator) putValue() *node { return line("put(%s)", g.expr(g.kindOf())) }

func (g *generator) callStatement() *node {
	if f, ok := g.named(function); ok {
		g.note("call")
		return line("put(%s)", g.callOf(f))
	}
	return g.putValue()
}

// tryValue writes the evaluation of an expression that may fail.
func (g *generator) tryValue() *node {
	g.note("expression that may fail")
	vararg := g.vararg
	g.vararg = false
	defer func() { g.vararg = vararg }()
	return line("try(function() return %s end)", g.risky())
}

func (g *generator) tryBlock() *node {
	g.note("pcall")
	n := g.functionOf(g.risky)
	n.open = "try(function" + n.open
	n.close = fmt.Sprintf("end, %s, %s)", g.expr(number), g.expr(text))
	return n
}

func (g *generator) loop(open, close string, declared ...variable) *node {
	g.loops++
	n := &node{open: open, close: close, body: g.block(declared...)}
	if g.chance(3) {
		g.note("break")
		inner := &node{open: fmt.Sprintf("if %s then", g.condition()), body: g.block(), close: "end"}
		if g.chance(2) {
			g.note("break behind a closure")
			hidden := g.fresh()
			inner.body = append(inner.body, line("local %s = %s", hidden, g.expr(number)),
				line("keep[#keep+1] = function() %s = %s + 1 return %s end", hidden, hidden, hidden))
		}
		inner.body = append(inner.body, line("break"))
		n.body = append(n.body, inner)
	}
	g.loops--
	return n
}

func (g *generator) forNumbers() *node {
	if g.loops > 1 {
		return g.assignMany()
	}
	g.note("for of numbers")
	bound := func() string {
		v := pick(g, "1", "3", "-2", "0.5", "2.5", "'2'", "' 4 '", "'0x3'", "lim("+g.expr(number)+")", "tostring(lim("+g.expr(number)+"))")
		if strings.Contains(v, "'") || strings.Contains(v, "tostring") {
			g.note("for of numeric strings")
		}
		return v
	}
	step := ""
	if g.chance(2) {
		step = ", " + pick(g, "1", "-1", "2", "0.75", "'1'", "'-1'", "-1.5", "1/0")
	}
	name := g.fresh()
	return g.loop(fmt.Sprintf("for %s = %s, %s%s do", name, bound(), bound(), step), "end", variable{name, number})
}

func (g *generator) forIterator() *node {
	if g.loops > 1 {
		return g.declareMany()
	}
	g.note("for of an iterator")
	a, b := g.fresh(), g.fresh()
	switch g.IntN(4) {
	case 0:
		return g.loop(fmt.Sprintf("for %s, %s in ipairs({%s, %s}) do", a, b, g.expr(number), g.expr(number)), "end", variable{a, number}, variable{b, number})
	case 1:
		return g.loop(fmt.Sprintf("for %s, %s in next, {%s} do", a, b, g.expr(number)), "end", variable{a, number}, variable{b, number})
	case 2:
		f := fmt.Sprintf("(function(s, c) if (c or 0) < 3 then return (c or 0) + 1, s end end)%s", pick(g, "", ", "+g.expr(number), ", "+g.expr(number)+", 1"))
		return g.loop(fmt.Sprintf("for %s, %s in %s do", a, b, f), "end", variable{a, number}, variable{b, anything})
	}
	return g.loop(fmt.Sprintf("for %s in pairs({%s, %s}) do", a, g.expr(number), g.expr(text)), "end", variable{a, number})
}

func (g *generator) whileLoop() *node {
	if g.loops > 1 {
		return g.putValue()
	}
	g.note("while")
	count := fmt.Sprintf("w%d", g.names)
	g.names++
	n := g.loop(fmt.Sprintf("while %s < %d and (%s) do", count, 1+g.IntN(4), g.condition()), "end")
	n.body = append([]*node{line("%s = %s + 1", count, count)}, n.body...)
	return &node{open: fmt.Sprintf("do local %s = 0", count), body: []*node{n}, close: "end"}
}

func (g *generator) repeatLoop() *node {
	if g.loops > 1 {
		return g.putValue()
	}
	g.note("repeat")
	count := fmt.Sprintf("w%d", g.names)
	g.names++
	inner := g.fresh()
	n := g.loop("repeat", fmt.Sprintf("until %s > %d or %s > 3", count, 1+g.IntN(3), inner))
	n.body = append([]*node{line("%s = %s + 1", count, count), line("local %s = %s", inner, g.expr(number))}, n.body...)
	if g.chance(3) {
		n.body = append(n.body, line("keep[#keep+1] = function() return %s end", inner))
	}
	return &node{open: fmt.Sprintf("do local %s = 0", count), body: []*node{n}, close: "end"}
}

func (g *generator) ifElse() *node {
	g.note("if")
	n := &node{open: fmt.Sprintf("if %s then", g.condition()), body: g.block(), close: "end"}
	if g.chance(2) {
		n.body = append(n.body, &node{open: fmt.Sprintf("elseif %s then", g.condition()), body: g.block()})
	}
	if g.chance(2) {
		n.body = append(n.body, &node{open: "else", body: g.block()})
	}
	return n
}

func (g *generator) doBlock() *node { return &node{open: "do", body: g.block(), close: "end"} }

func (g *generator) newFunction() *node { return g.declareFunction(g.fresh()) }

// closures writes a loop that makes a closure in each turn. Each closure has variables of its own.
// The loop also calls some closures.
func (g *generator) closures() *node {
	g.note("closures of a loop")
	i, x, y := g.fresh(), g.fresh(), g.fresh()
	return &node{open: fmt.Sprintf("for %s = 1, 3 do", i), close: "end", body: []*node{
		line("local %s, %s = %s, %s", x, y, g.expr(number), i),
		line("keep[#keep+1] = function(d) %s, %s = %s + (d or 1), %s return %s, %s end", x, y, y, x, x, y),
		line("if %s == 2 then put(keep[#keep](%s)) end", i, g.expr(number)),
		line("put(keep[1](), keep[#keep]())"),
	}}
}
