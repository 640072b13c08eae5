package script

import (
	"math"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// arithmetic rewrites an operation. It computes operations on constants. The virtual machine
// computes % and ^ wrongly, so they become calls. If the first operand must be read late
// (isReadLate), the call takes the operands in the reverse order. The other operators become calls
// only if the first operand is in a box and must be read late.
func (r *rewriter) arithmetic(at *ast.Expr, e *ast.ArithmeticOpExpr) {
	r.expr(&e.Lhs)
	r.expr(&e.Rhs)
	if r.scanning || fold(at) {
		return
	}
	late := r.isReadLate(e.Lhs, e.Rhs)
	if e.Operator != "%" && e.Operator != "^" && !(late && r.isBox(e.Lhs)) {
		return
	}
	if late {
		*at = call(e, lateName+e.Operator, []ast.Expr{e.Rhs, e.Lhs})
		return
	}
	*at = call(e, e.Operator, []ast.Expr{e.Lhs, e.Rhs})
}

// isReadLate reports whether the next operand may change e before the operation reads it. Lua reads
// a local variable only when the operation runs.
func (r *rewriter) isReadLate(e, next ast.Expr) bool {
	return (r.isLocal(e) || r.isBox(e)) && !isPlain(next) && !r.isLocal(next) && !r.isBox(next)
}

// relation swaps the operands of a comparison if the first is in a box and must be read late
// (isReadLate).
func (r *rewriter) relation(e *ast.RelationalOpExpr) {
	if r.scanning || !r.isBox(e.Lhs) || !r.isReadLate(e.Lhs, e.Rhs) {
		return
	}
	e.Lhs, e.Rhs = e.Rhs, e.Lhs
	if other := map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<="}[e.Operator]; other != "" {
		e.Operator = other
	}
}

// operators are the arithmetic operators, with their metamethods.
var operators = map[string]struct {
	event  string
	result func(a, b float64) float64
}{
	"+": {"__add", func(a, b float64) float64 { return a + b }},
	"-": {"__sub", func(a, b float64) float64 { return a - b }},
	"*": {"__mul", func(a, b float64) float64 { return a * b }},
	"/": {"__div", func(a, b float64) float64 { return a / b }},
	"%": {"__mod", modulo},
	"^": {"__pow", power},
}

// modulo is a % b by Lua's definition, rounded at each step.
func modulo(a, b float64) float64 { return a - float64(math.Floor(a/b)*b) }

// power is a ^ b. If a is a NaN with its sign bit set and b is an odd integer, power returns -a, as
// the C library does.
func power(a, b float64) float64 {
	if math.IsNaN(a) && math.Signbit(a) && math.Mod(b, 2) != 0 && b == math.Trunc(b) && !math.IsInf(b, 0) {
		return -a
	}
	return signed(math.Pow(a, b), a, b)
}

// openOperators defines the functions of operators that are compiled as calls. It also adds
// operators to the metatable of strings. Otherwise the virtual machine would parse strings as
// numbers by Go's rules.
func (s *state) openOperators(stringMeta *lua.LTable) {
	for name, f := range map[string]lua.LGFunction{concatName: s.concat, lengthName: s.length, boundsName: forBounds} {
		s.globals.RawSetString(name, s.lua.NewFunction(f))
	}
	for name, operator := range operators {
		f := binary(operator.event, operator.result)
		s.globals.RawSetString(name, s.lua.NewFunction(f))
		s.globals.RawSetString(lateName+name, s.lua.NewFunction(swapped(f)))
		stringMeta.RawSetString(operator.event, s.lua.NewFunction(f))
	}
	stringMeta.RawSetString("__unm", s.lua.NewFunction(negate))
}

// binary returns an arithmetic operator for numbers, numeric strings, and tables with a metamethod.
func binary(event string, result func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		left, right := L.Get(1), L.Get(2)
		a, ok1 := plainNumber(left)
		b, ok2 := plainNumber(right)
		if ok1 && ok2 {
			return push(L, lua.LNumber(result(a, b)))
		}
		return push(L, byMetamethod(L, event, left, right, ok1, "perform arithmetic on"))
	}
}

func swapped(f lua.LGFunction) lua.LGFunction {
	return func(L *lua.LState) int {
		right := L.Get(1)
		L.Replace(1, L.Get(2))
		L.Replace(2, right)
		return f(L)
	}
}

func negate(L *lua.LState) int {
	f, ok := plainNumber(L.Get(1))
	if !ok {
		raiseError(L, "attempt to perform arithmetic on a %s value", L.Get(1).Type().String())
	}
	return push(L, lua.LNumber(-f))
}

func forBounds(L *lua.LState) int {
	for i, what := range []string{"initial value", "limit", "step"} {
		f, ok := plainNumber(L.Get(i + 1))
		if !ok {
			raiseError(L, "'for' %s must be a number", what)
		}
		L.Push(lua.LNumber(f))
	}
	return 3
}
