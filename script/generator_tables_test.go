package script

import (
	"fmt"
	"strings"
)

func (g *generator) useTable() *node {
	name, ok := g.named(array)
	if !ok {
		return g.declare(array)
	}
	g.note("table of an array")
	t := strings.NewReplacer("T", name, "N", g.simple(number), "M", g.simple(number), "I", g.index(name), "S", g.simple(text)).Replace
	return line("%s", t(pick(g,
		"table.insert(T, N)", "table.insert(T, I, N)", "put(table.remove(T))", "put(table.remove(T, I))",
		"T[#T] = nil", "T[#T+1], T[#T+2] = N, M", "put(table.concat(T, ','))", "put(#T, table.getn(T))",
		"put(unpack(T))", "put(unpack(T, 2))", "put(unpack(T, I, I))", "put(select('#', unpack(T, 1, lim(N))))",
		"if #T < 20 then table.insert(T, 1, N) end", "put(table.concat(T, clip(S), 1, math.min(#T, 3)))",
		"put((next(T)))", "put(rawget(T, 1), rawequal(T, T), #{unpack(T)})", "put({unpack(T)}, {N, unpack(T)}, {unpack(T), N})",
	)))
}

func (g *generator) useRecord() *node {
	name, ok := g.named(record)
	if !ok {
		return g.declare(record)
	}
	g.note("table of a map")
	t := strings.NewReplacer("T", name, "N", g.expr(number), "V", g.expr(anything), "K", g.key(), "S", g.expr(text)).Replace
	return line("%s", t(pick(g,
		"T[K] = V", "T[K] = nil", "T.a = V", "T[S] = N", "put(T[K], T.a)", "put(T)", "T.a, T.b = T.b, T.a", "rawset(T, K, V)",
		"put(rawget(T, K), T[K] == V)", "do local n = 0 for k, v in pairs(T) do n = n + 1 end put(n) end", "T[true] = V T[false] = N",
		"put(next({[K] = V}))", "put(T[1], T['1'], T[1.0])", "T[lim(N)] = N", "T.f = function(self, x) return self == T, x end put(T:f(N))",
		"try(function() T[V] = N end)", "T.x = {y = {z = N}} T.x.y.z, T.x.y = V, T.x put(T.x ~= T.x.y)",
	)))
}

func (g *generator) metatable() *node {
	g.note("metatable")
	vararg := g.vararg
	g.vararg = false
	defer func() { g.vararg = vararg }()
	a, b := g.expr(number), g.expr(anything)
	event := pick(g, "add", "sub", "mul", "div", "mod", "pow", "unm", "concat", "eq", "lt", "le", "index", "newindex", "call", "tostring")
	body := fmt.Sprintf("function(x, y) return type(x) .. %s, %s end", pick(g, "''", "type(y)"), b)
	operator := map[string]string{"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%", "pow": "^", "concat": "..", "eq": "==", "lt": "<", "le": "<="}[event]
	use := fmt.Sprintf("m %s %s", operator, pick(g, a, "m", "n", g.expr(text), "nil"))
	if operator != "" && g.chance(2) {
		use = fmt.Sprintf("%s %s m", pick(g, a, "n", g.expr(text), "true"), operator)
	}
	switch event {
	case "unm":
		// Lua passes the operand of a unary operator twice.
		body, use = fmt.Sprintf("function(x) return type(x), %s end", b), "-m"
	case "index":
		use = fmt.Sprintf("m[%s], m.x", g.expr(number))
		if g.chance(2) {
			body = fmt.Sprintf("{x = %s, [1] = %s}", a, b)
		}
	case "newindex":
		use = fmt.Sprintf("(function() m.x, m.y = %s, %s return rawget(m, 'x'), m end)()", a, b)
		body = pick(g, "function(t, k, v) put(k, v) rawset(t, k .. 'z', v) end", "{}")
	case "call":
		use = fmt.Sprintf("m(%s, %s)", a, b)
	case "tostring":
		use = "tostring(m)"
	}
	return line("try(function() local e = {__%s = %s} local m, n = setmetatable({}, e), setmetatable({}, e) return %s end)", event, body, use)
}

func (g *generator) method() *node {
	g.note("method")
	vararg := g.vararg
	g.vararg = false
	defer func() { g.vararg = vararg }()
	name := g.fresh()
	n := &node{open: fmt.Sprintf("do local o = {n = %s}", g.expr(number)), close: "end"}
	n.body = append(n.body, line("function o:add(%s, ...) self.n, %s = nz(self.n + lim(%s)), self.n return self, %s, ... end", name, name, name, name))
	n.body = append(n.body, line("put(select(2, o:add(%s):add(%s, %s)))", g.expr(number), g.expr(number), g.expr(text)))
	n.body = append(n.body, line("put(o.n)"))
	return n
}

// recursion writes a recursive function that ends.
func (g *generator) recursion() *node {
	g.note("recursion")
	f := g.fresh()
	return &node{open: fmt.Sprintf("do local function %s(n, a, ...)", f), close: "end", body: []*node{
		line("if n <= 0 then return a, ... end"),
		line("%s", pick(g,
			fmt.Sprintf("return %s(n - 1, n, a, ...)", f),
			fmt.Sprintf("a, n = n, a return %s(a - 1, n, select('#', ...))", f),
			fmt.Sprintf("local r = {%s(n - 1, a)} return n, unpack(r)", f),
			fmt.Sprintf("a = %s(n - 1, a) return a, n, ...", f),
			fmt.Sprintf("a = (%s(n - 1, a)) return n, a", f),
		)),
		line("end"),
		line("put(%s(%d, %s, %s))", f, g.IntN(6), g.expr(anything), g.expr(anything)),
	}}
}

// wrapper writes a function that hides another function of the same name, and calls the hidden one.
func (g *generator) wrapper() *node {
	g.note("wrapper of a function")
	name := pick(g, "tostring", "type", "tonumber", "select", "unpack")
	arg := map[string]string{"select": "2, 7, ", "unpack": "{8, 9}, "}[name]
	return line("do local %s = function(...) put('in', (...)) return %s(...) end put(%s(%s%s)) end", name, name, name, arg, g.expr(number))
}
