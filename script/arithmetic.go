package script

import (
	"math"
	"strconv"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
)

// number spells a number so that the compiler reads it as Lua does: it takes 010 for octal and
// does not know 0xffffffffffffffff.
func (r *rewriter) number(e *ast.NumberExpr) {
	f, ok := parseNumber(e.Value)
	if !ok {
		if r.err == nil {
			r.err = malformedNumber(r.name, e)
		}
		return
	}
	e.Value = spelled(f)
}

func spelled(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < maxExact && (f != 0 || !math.Signbit(f)) {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'e', -1, 64)
}

// arithmetic has % and ^ done by functions. An operation on constants is done here, but for
// those that Lua leaves for later.
func (r *rewriter) arithmetic(at *ast.Expr, e *ast.ArithmeticOpExpr) {
	name, late := moduloName, lateModuloName
	switch e.Operator {
	case "/":
		if b, ok := constantValue(e.Rhs); ok && b == 0 {
			// Not a constant for the compiler; as in Lua, this 0 is one of the function.
			e.Rhs = placed(e, &ast.LogicalOpExpr{Operator: "or", Lhs: placed(e, &ast.NilExpr{}), Rhs: e.Rhs})
		}
		return
	case "^":
		name, late = powerName, latePowerName
	case "%":
	default:
		return
	}
	if f, ok := constantValue(e); ok {
		*at = placed(e, &ast.NumberExpr{Value: spelled(f)})
		return
	}
	if r.isLocal(e.Lhs) && !isPlain(e.Rhs) && !r.isLocal(e.Rhs) {
		*at = call(e, late, []ast.Expr{e.Rhs, e.Lhs})
		return
	}
	*at = call(e, name, []ast.Expr{e.Lhs, e.Rhs})
}

// constantValue is the value of an expression that Lua computes when it compiles.
func constantValue(e ast.Expr) (float64, bool) {
	switch e := e.(type) {
	case *ast.NumberExpr:
		return parseNumber(e.Value)
	case *ast.UnaryMinusOpExpr:
		f, ok := constantValue(e.Expr)
		return -f, ok && !math.IsNaN(f)
	case *ast.ArithmeticOpExpr:
		a, ok1 := constantValue(e.Lhs)
		b, ok2 := constantValue(e.Rhs)
		if !ok1 || !ok2 || b == 0 && (e.Operator == "/" || e.Operator == "%") {
			return 0, false
		}
		f := operation(e.Operator)(a, b)
		return f, !math.IsNaN(f)
	}
	return 0, false
}

func operation(operator string) func(a, b float64) float64 {
	switch operator {
	case "+":
		return func(a, b float64) float64 { return a + b }
	case "-":
		return func(a, b float64) float64 { return a - b }
	case "*":
		return func(a, b float64) float64 { return a * b }
	case "/":
		return func(a, b float64) float64 { return a / b }
	case "%":
		return modulo
	}
	return power
}

// modulo is a % b by Lua's definition, with a rounding at each step.
func modulo(a, b float64) float64 { return a - float64(math.Floor(a/b)*b) }

func power(a, b float64) float64 { return signed(math.Pow(a, b), invalid, a, b) }

// openOperators defines the functions that operators are compiled as, and what arithmetic with
// strings does: the machine asks their metatable before it reads them as numbers of Go.
func (s *state) openOperators(stringMeta *lua.LTable) {
	mod, pow := s.binary("__mod", modulo), s.binary("__pow", power)
	for name, f := range map[string]lua.LGFunction{
		concatName: s.concat, lengthName: s.length, boundsName: forBounds,
		moduloName: mod, powerName: pow, lateModuloName: swapped(mod), latePowerName: swapped(pow),
	} {
		s.globals.RawSetString(name, s.lua.NewFunction(f))
	}
	for event, f := range map[string]lua.LGFunction{
		"__add": s.binary("__add", operation("+")), "__sub": s.binary("__sub", operation("-")),
		"__mul": s.binary("__mul", operation("*")), "__div": s.binary("__div", operation("/")),
		"__unm": negate,
	} {
		stringMeta.RawSetString(event, s.lua.NewFunction(f))
	}
}

// binary is an operator of arithmetic: of numbers, strings that spell some, or tables with a
// metamethod.
func (s *state) binary(event string, f func(a, b float64) float64) lua.LGFunction {
	return func(L *lua.LState) int {
		left, right := L.Get(1), L.Get(2)
		a, ok1 := plainNumber(left)
		b, ok2 := plainNumber(right)
		if ok1 && ok2 {
			L.Push(lua.LNumber(f(a, b)))
			return 1
		}
		for _, v := range []lua.LValue{left, right} {
			if t, ok := v.(*lua.LTable); ok {
				if method := L.GetMetaField(t, event); method != lua.LNil {
					L.Push(method)
					L.Push(left)
					L.Push(right)
					L.Call(2, 1)
					return 1
				}
			}
		}
		culprit := left
		if ok1 {
			culprit = right
		}
		L.RaiseError("attempt to perform arithmetic on a %s value", culprit.Type().String())
		return 0
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
		L.RaiseError("attempt to perform arithmetic on a %s value", L.Get(1).Type().String())
	}
	L.Push(lua.LNumber(-f))
	return 1
}

// forBounds makes numbers of the bounds of a loop.
func forBounds(L *lua.LState) int {
	for i, what := range []string{"initial value", "limit", "step"} {
		f, ok := plainNumber(L.Get(i + 1))
		if !ok {
			L.RaiseError("'for' %s must be a number", what)
		}
		L.Push(lua.LNumber(f))
	}
	return 3
}
