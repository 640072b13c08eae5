package script

import (
	"fmt"
	"strings"
)

// yields are statements of a coroutine. The keys say how they use the values of the next resume.
var yields = map[string][]string{
	"yield into variables": {
		"local x, y = coroutine.yield(V) put(x, y)", "a, t.b, t.c = coroutine.yield(V) put(a, t)", "t.b = coroutine.yield(V) put(t)",
		"local x, y, z = V, coroutine.yield(a) put(x, y, z)", "b = (coroutine.yield(V)) == nil put(b)", "local x = coroutine.yield(V) or V put(x)",
	},
	"yield as a condition": {
		"if coroutine.yield(V) then put('then') else put('else') end", "put(not coroutine.yield(V))", "put(coroutine.yield() and V)",
	},
	"yield in a loop": {
		"for i = 1, 2 do local x, y = coroutine.yield(i) put(x, y) end", "repeat local x, y = coroutine.yield(V) until y",
		"while coroutine.yield(V) do put('again') end", "for k, v in ipairs({coroutine.yield(V)}) do put(k, v) end",
		"for x, y in coroutine.wrap(function(p) put(coroutine.yield(V)) coroutine.yield(p) end) do put(x, y) end",
	},
	"yield among arguments": {
		"put(coroutine.yield(V, V))", "put(V, coroutine.yield())", "put(coroutine.yield(a), V)", "put(select('#', coroutine.yield(...)))",
		"t = {1, coroutine.yield(V)} put(t)", "put({b = coroutine.yield(V), coroutine.yield(V), V})",
	},
	"yield in a called function": {
		"put(wait(V))", "local x, y = wait(V, V) put(x, y)", "put((function(...) local x, y = coroutine.yield(...) return y, x end)(V))",
		"put(setmetatable({}, {__call = function(_, x) return coroutine.yield(x) end})(V))", "b = wait put(b(V))",
	},
	"yield across a call": {
		"put(pcall(coroutine.yield, V))", "put(pcall(wait, V))", "try(function() return coroutine.yield(V) end)",
		"put(pcall(table.sort, {3, 1, 2}, wait))", "put(pcall(string.gsub, 'abc', '%w', wait))",
		"put(pcall(function() for x in wait do return x end end))",
		"put(pcall(function() return setmetatable({}, {__index = wait}).x end))",
		"put(pcall(function() return setmetatable({}, {__add = wait, __mod = wait}) O 1 end))",
	},
}

// coroutine writes a coroutine that is resumed with no, one and several values.
func (g *generator) coroutine() *node {
	g.note("coroutine")
	vararg := g.vararg
	g.vararg = false
	defer func() { g.vararg = vararg }()
	var b strings.Builder
	write := func(text string) {
		for i, part := range strings.Split(text, "V") {
			if i > 0 {
				b.WriteString(g.simple(anything))
			}
			b.WriteString(strings.Replace(part, " O ", pick(g, " + ", " % "), 1))
		}
		b.WriteByte(' ')
	}
	write("try(function() local function wait(...) return coroutine.yield(...) end local function body(a, ...) local t, b = {}")
	for range 1 + g.IntN(3) {
		name := pick(g, "yield into variables", "yield as a condition", "yield in a loop", "yield among arguments", "yield in a called function", "yield across a call")
		g.note(name)
		write(pick(g, yields[name]...))
	}
	last := pick(g, "return coroutine.yield(V)", "return wait(V)", "return a, b, V", "return", "error({V})", "return coroutine.running() ~= nil")
	if strings.Contains(last, "yield") {
		g.note("yield as the last call")
	}
	write(last + " end")
	write(pick(g, "local c = coroutine.wrap(body)", "local o = coroutine.create(body) local function c(...) put(coroutine.status(o)) return coroutine.resume(o, ...) end"))
	for range 2 + g.IntN(5) {
		values := pick(g, "no value", "one value", "several values")
		g.note("resume with " + values)
		args := map[string]string{"no value": "", "one value": "V", "several values": "V, V, V"}[values]
		write(fmt.Sprintf(pick(g, "put(c(%s))", "put(c(%s))", "do local x, y = c(%s) put(x, y) end", "if c(%s) then put('more') end"), args))
	}
	write("return c() end)")
	return line("%s", b.String())
}
