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

// arithmetic has operators done by functions that the machine gets wrong: % and ^, and * and /
// where a zero may get the sign minus, which the machine drops. An operation on constants is
// done here, but for those that Lua leaves for later.
func (r *rewriter) arithmetic(at *ast.Expr, e *ast.ArithmeticOpExpr) {
	if r.looks || r.fold(at) {
		return
	}
	r.settleZero(&e.Rhs)
	r.settleZero(&e.Lhs)
	late := r.isReadLate(e.Lhs, e.Rhs)
	switch e.Operator {
	case "+", "-":
		if !r.isBox(e.Lhs) || !late {
			return
		}
	case "*":
		if isPositive(e.Lhs) || isPositive(e.Rhs) {
			return
		}
	case "/":
		if isPositive(e.Rhs) {
			return
		}
	}
	if late {
		*at = call(e, lateName+e.Operator, []ast.Expr{e.Rhs, e.Lhs})
		return
	}
	*at = call(e, e.Operator, []ast.Expr{e.Lhs, e.Rhs})
}

// isReadLate reports whether an operand is read after the next one was evaluated, and that may change
// it. Lua reads local variables where they are when it needs them.
func (r *rewriter) isReadLate(e, next ast.Expr) bool {
	return (r.isLocal(e) || r.isBox(e)) && !isPlain(next) && !r.isLocal(next) && !r.isBox(next)
}

// relation exchanges the operands of a comparison if the first is in a box and to be read last.
func (r *rewriter) relation(e *ast.RelationalOpExpr) {
	if r.looks || !r.isBox(e.Lhs) || !r.isReadLate(e.Lhs, e.Rhs) {
		return
	}
	e.Lhs, e.Rhs = e.Rhs, e.Lhs
	if other := map[string]string{"<": ">", ">": "<", "<=": ">=", ">=": "<="}[e.Operator]; other != "" {
		e.Operator = other
	}
}

// fold replaces an expression by the number that it always gives, and reports whether it has.
func (r *rewriter) fold(at *ast.Expr) bool {
	f, ok := constantValue(*at)
	if ok && !r.looks {
		*at = placed(*at, &ast.NumberExpr{Value: spelled(f)})
	}
	return ok
}

// settleZero gives a constant 0 the sign of the first that the function has: Lua keeps one of each
// number, and takes 0 and -0 for the same.
func (r *rewriter) settleZero(at *ast.Expr) {
	if last, ok := (*at).(*ast.LogicalOpExpr); ok {
		r.settleZero(&last.Rhs)
		return
	}
	e, ok := (*at).(*ast.NumberExpr)
	if !ok || r.looks {
		return
	}
	if f, _ := parseNumber(e.Value); f != 0 {
		return
	}
	first := &r.zeros[len(r.zeros)-1]
	if *first == "" {
		*first = e.Value
	}
	e.Value = *first
}

func isPositive(e ast.Expr) bool {
	f, ok := constantValue(e)
	return ok && f > 0
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
	for name, f := range map[string]lua.LGFunction{concatName: s.concat, lengthName: s.length, boundsName: forBounds} {
		s.globals.RawSetString(name, s.lua.NewFunction(f))
	}
	for operator, event := range map[string]string{"+": "__add", "-": "__sub", "*": "__mul", "/": "__div", "%": "__mod", "^": "__pow"} {
		f := s.binary(event, operation(operator))
		s.globals.RawSetString(operator, s.lua.NewFunction(f))
		s.globals.RawSetString(lateName+operator, s.lua.NewFunction(swapped(f)))
		stringMeta.RawSetString(event, s.lua.NewFunction(f))
	}
	stringMeta.RawSetString("__unm", s.lua.NewFunction(negate))
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
