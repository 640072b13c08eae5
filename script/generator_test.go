package script

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// generator writes random programs of Lua 5.1. The programs end, and their replies do not depend on
// anything that Lua leaves open. Risky expressions run in try, which adds the kind of the error to
// the reply. Variables have types, which limits the number of errors.
type generator struct {
	*rand.Rand
	made   map[string]int // number of some constructs so far
	vars   []variable     // in scope
	names  int
	depth  int // of the current block
	loops  int // number of loops around the current statement, in its function
	nested int // depth of the current expression
	vararg bool
}

type kind byte

const (
	number kind = iota
	text
	array // of numbers, without holes
	record
	function // takes two values of any kind; returns a number and a value of any kind
	anything
)

type variable struct {
	name string
	kind kind
}

// node is a statement: one line, or two lines around other statements.
type node struct {
	open  string
	body  []*node
	close string
}

func (n *node) write(b *strings.Builder) {
	b.WriteString(n.open)
	b.WriteByte('\n')
	for _, inner := range n.body {
		inner.write(b)
	}
	if n.close != "" {
		b.WriteString(n.close)
		b.WriteByte('\n')
	}
}

// prelude has the functions by which programs show values. They show a key 0 without its sign,
// which differs (docs/reference/redis-keys.md).
const prelude = `local out, keep, fuel = {}, {}, 200
local function sort(t)
  for i = 2, #t do
    local j, v = i, t[i]
    while j > 1 and v < t[j-1] do t[j], j = t[j-1], j-1 end
    t[j] = v
  end
end
local function show(v, deep)
  deep = deep or 0
  if type(v) == 'number' then return tostring(v) .. '/' .. string.format('%.17g', v) end
  if type(v) == 'string' then return '"' .. v .. '"' end
  if type(v) == 'function' then return type(v) end
  if type(v) ~= 'table' then return tostring(v) end
  if deep > 3 then return '...' end
  local keys = {}
  for k, x in next, v do
    if k == 0 then k = 0 end
    if k ~= 'ignore_error_stats_update' then keys[#keys+1] = show(k, deep+1) .. '=' .. show(x, deep+1) end
  end
  sort(keys)
  return '{' .. table.concat(keys, ' ') .. '}'
end
local function put(...) for i = 1, #out < 1000 and select('#', ...) or 0 do out[#out+1] = show((select(i, ...))) end end
local function kind(e)
  if type(e) ~= 'string' then return show(e) end
  for _, word in ipairs({'arithmetic', 'perform', '__unm', 'compare', 'call', 'index', 'concatenate', 'length', 'argument', 'overflow'}) do
    if string.find(e, word, 1, true) then return (word == 'perform' or word == '__unm') and 'arithmetic' or word end
  end
  if string.sub(e, 1, 12) ~= 'user_script:' then return e end
  return string.sub(e, (select(2, string.find(e, ': ', 1, true)) or 0) + 1)
end
local function told(ok, ...) if ok then put('ok', ...) else put('error', kind(...)) end end
local function try(f, ...) told(pcall(f, ...)) end
local function lim(x) x = tonumber(x) if x and x >= -6 and x <= 6 and x ~= 0 then return x end return x == 0 and 0 or 3 end
local function clip(s) return string.sub(s, 1, 40) end
local function nz(x) if x == 0 then return 0 end return x end
local function near(x) return tonumber(string.format('%.9g', x)) end
for i = 1, 4 do redis.call('del', 'k' .. i) end
`

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 29)), made: map[string]int{}}
}

// program returns the statements of a program, without the prelude.
func (g *generator) program() []*node {
	g.vars, g.vararg = g.vars[:0], false
	var p []*node
	for _, k := range []kind{number, number, text, array, record} {
		p = append(p, g.declare(k))
	}
	for range 3 + g.IntN(8) {
		p = append(p, g.statement())
	}
	var shown []string
	for _, v := range g.vars {
		shown = append(shown, v.name)
	}
	p = append(p, line("put(%s)", strings.Join(shown, ", ")), line("for i = 1, #keep do put(keep[i]()) end"))
	if g.IntN(8) == 0 {
		g.note("reply of a value")
		return append(p, line("return %s", g.reply(0)))
	}
	return append(p, line("return table.concat(out, '\\n')"))
}

func source(p []*node) string {
	var b strings.Builder
	b.WriteString(prelude)
	for _, n := range p {
		n.write(&b)
	}
	return b.String()
}

func line(format string, args ...any) *node { return &node{open: fmt.Sprintf(format, args...)} }

func (g *generator) note(construct string) { g.made[construct]++ }

// chance returns true with a probability of 1/n.
func (g *generator) chance(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) fresh() string {
	g.names++
	return fmt.Sprintf("v%d", g.names%50) // a name that comes again hides the earlier variable
}

func (g *generator) named(k kind) (string, bool) {
	var found []string
	for i, v := range g.vars {
		hidden := slices.ContainsFunc(g.vars[i+1:], func(w variable) bool { return w.name == v.name })
		if v.kind == k && !hidden {
			found = append(found, v.name)
		}
	}
	if len(found) == 0 {
		return "", false
	}
	return found[g.IntN(len(found))], true
}

// kindOf returns a random kind of value.
func (g *generator) kindOf() kind {
	return pick(g, number, number, number, text, text, array, record, function, anything)
}

// block writes statements in a new scope, which begins with the declared variables.
func (g *generator) block(declared ...variable) []*node {
	was := len(g.vars)
	g.vars = append(g.vars, declared...)
	g.depth++
	var body []*node
	for range 1 + g.IntN(3) {
		body = append(body, g.statement())
	}
	g.depth--
	g.vars = g.vars[:was]
	return body
}

// functionOf writes the parameters and the body of a function. last writes the returned values.
func (g *generator) functionOf(last func() string) *node {
	loops, vararg := g.loops, g.vararg
	g.loops, g.vararg = 0, g.chance(3)
	a, b := g.fresh(), g.fresh()
	params := a + ", " + b
	if g.vararg {
		g.note("varargs")
		params += ", ..."
	}
	n := &node{open: "(" + params + ")"}
	was := len(g.vars)
	g.vars = append(g.vars, variable{a, anything}, variable{b, anything})
	if g.chance(3) {
		n.body = append(n.body, line("%s = %s", b, g.expr(anything))) // the last parameter
		g.note("assignment to a parameter")
	}
	n.body = append(n.body, line("fuel = fuel - 1 if fuel < 0 then return 0, 'spent' end"))
	n.body = append(n.body, g.block()...)
	n.body = append(n.body, line("return %s", last()))
	n.close = "end"
	g.vars = g.vars[:was]
	g.loops, g.vararg = loops, vararg
	return n
}
