package script

import (
	"math"
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// Lua computes an operation on constants when it compiles, and keeps each constant of a function once,
// where 0 and -0 are the same. So the sign of a zero depends on which operations Lua takes for
// constant, and on the order in which it asks for constants. What is here follows lcode.c.

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

// constantValue is the value of a number that Lua knows when it compiles.
func (r *rewriter) constantValue(e ast.Expr) (float64, bool) {
	n, ok := e.(*ast.NumberExpr)
	if !ok || r.hidden[e] {
		return 0, false
	}
	return parseNumber(n.Value)
}

// fold replaces an operation on such numbers by its result, and reports whether it has. A division by
// zero and what gives no number are left for later.
func (r *rewriter) fold(at *ast.Expr) bool {
	var f float64
	switch e := (*at).(type) {
	case *ast.UnaryMinusOpExpr:
		a, ok := r.constantValue(e.Expr)
		if !ok {
			return false
		}
		f = -a
	case *ast.ArithmeticOpExpr:
		a, ok1 := r.constantValue(e.Lhs)
		b, ok2 := r.constantValue(e.Rhs)
		if !ok1 || !ok2 || b == 0 && (e.Operator == "/" || e.Operator == "%") {
			return false
		}
		f = operation(e.Operator)(a, b)
	}
	if math.IsNaN(f) {
		return false
	}
	*at = placed(*at, &ast.NumberExpr{Value: spelled(f)})
	return true
}

// settle ends the rewriting of an expression whose value is needed. A constant 0 gets the sign of
// the first that its function has.
func (r *rewriter) settle(at *ast.Expr) {
	if r.looks {
		return
	}
	switch e := (*at).(type) {
	case *ast.LogicalOpExpr:
		r.settle(&e.Rhs)
		r.decide(at, e)
	case *ast.NumberExpr:
		if f, _ := parseNumber(e.Value); f != 0 {
			return
		}
		first := &r.zeros[len(r.zeros)-1]
		if *first == "" {
			*first = e.Value
		}
		e.Value = *first
	}
}

// settleTruth ends the rewriting of an expression of which only matters whether it is true. Its last
// operand is then no constant of the function.
func (r *rewriter) settleTruth(at *ast.Expr) {
	if r.looks {
		return
	}
	switch e := (*at).(type) {
	case *ast.LogicalOpExpr:
		r.settleTruth(&e.Rhs)
		r.decide(at, e)
	case *ast.NumberExpr:
		is := placed(e, &ast.TrueExpr{})
		r.hidden[is] = r.hidden[e]
		*at = is
	}
}

// minus rewrites a change of sign.
func (r *rewriter) minus(at *ast.Expr, e *ast.UnaryMinusOpExpr) {
	r.operand(&e.Expr)
	if r.looks || r.fold(at) {
		return
	}
	r.settle(&e.Expr)
	if _, ok := e.Expr.(*ast.NumberExpr); ok { // the compiler would make a constant of it
		*at = call(e, "*", []ast.Expr{placed(e, &ast.NumberExpr{Value: "-1"}), e.Expr})
	}
}

func (r *rewriter) not(at *ast.Expr, e *ast.UnaryNotOpExpr) {
	r.operand(&e.Expr)
	r.settleTruth(&e.Expr)
	is, ok := truth(e.Expr)
	if !ok || r.looks {
		return
	}
	*at = placed(e, ast.Expr(&ast.TrueExpr{}))
	if is {
		*at = placed(e, ast.Expr(&ast.FalseExpr{}))
	}
	r.hidden[*at] = r.hidden[e.Expr]
}

// logical rewrites an and or or. One whose first operand is a constant must not be left to the
// compiler (see jumps.go). If Lua makes no jump of that operand either, it is dropped here;
// otherwise decide does that, when the second operand was settled.
func (r *rewriter) logical(at *ast.Expr, e *ast.LogicalOpExpr) {
	r.operand(&e.Lhs)
	if e.Operator == "or" {
		r.settle(&e.Lhs)
	} else {
		r.settleTruth(&e.Lhs)
	}
	r.operand(&e.Rhs)
	is, ok := truth(e.Lhs)
	if ok && !r.looks && !r.hidden[e.Lhs] && is == (e.Operator == "and") {
		oneValue(e.Rhs)
		*at = e.Rhs
	}
}

// decide replaces an and or or whose first operand is a constant by what it gives. Lua does not
// see that this is a constant, if it is one.
func (r *rewriter) decide(at *ast.Expr, e *ast.LogicalOpExpr) {
	is, ok := truth(e.Lhs)
	if !ok {
		return
	}
	*at = e.Lhs
	if is == (e.Operator == "and") {
		oneValue(e.Rhs)
		*at = e.Rhs
	}
	r.hidden[*at] = true
}

// condition rewrites a condition. Its code must not begin with a jump (see jumps.go): the compiler
// makes one of a nil or false.
func (r *rewriter) condition(at *ast.Expr) {
	r.operand(at)
	r.settleTruth(at)
	if is, ok := truth(*at); ok && !is && !r.looks {
		*at = placed(*at, &ast.UnaryNotOpExpr{Expr: placed(*at, &ast.StringExpr{})})
	}
}

// truth tells whether a constant is true for a condition, and whether an expression is one.
func truth(e ast.Expr) (is, ok bool) {
	switch e.(type) {
	case *ast.NilExpr, *ast.FalseExpr:
		return false, true
	case *ast.TrueExpr, *ast.StringExpr, *ast.NumberExpr:
		return true, true
	}
	return false, false
}
