package script

import (
	"math"
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// number replaces a number by its decimal digits. The compiler reads 010 as octal, and cannot read
// 0xffffffffffffffff.
func (r *rewriter) number(e *ast.NumberExpr) {
	f, ok := parseNumber(e.Value)
	if !ok {
		r.refuse(e.Line(), "malformed number near '%s'", e.Value)
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

func constantValue(e ast.Expr) (float64, bool) {
	if n, ok := e.(*ast.NumberExpr); ok {
		return parseNumber(n.Value)
	}
	return 0, false
}

// fold replaces an operation on constants by its result, and reports whether it did. As in Lua, it
// does not fold a division by zero or a result of NaN.
func fold(at *ast.Expr) bool {
	var f float64
	switch e := (*at).(type) {
	case *ast.UnaryMinusOpExpr:
		a, ok := constantValue(e.Expr)
		if !ok {
			return false
		}
		f = -a
	case *ast.ArithmeticOpExpr:
		a, ok1 := constantValue(e.Lhs)
		b, ok2 := constantValue(e.Rhs)
		if !ok1 || !ok2 || b == 0 && (e.Operator == "/" || e.Operator == "%") {
			return false
		}
		f = operators[e.Operator].result(a, b)
	}
	if math.IsNaN(f) {
		return false
	}
	*at = placed(*at, &ast.NumberExpr{Value: spelled(f)})
	return true
}

func (r *rewriter) minus(at *ast.Expr, e *ast.UnaryMinusOpExpr) {
	r.expr(&e.Expr)
	if !r.scanning {
		fold(at)
	}
}

func (r *rewriter) not(at *ast.Expr, e *ast.UnaryNotOpExpr) {
	r.expr(&e.Expr)
	is, ok := truth(e.Expr)
	switch {
	case !ok || r.scanning:
	case is:
		*at = placed(e, ast.Expr(&ast.FalseExpr{}))
	default:
		*at = placed(e, ast.Expr(&ast.TrueExpr{}))
	}
}

// logical rewrites "and" and "or". If the first operand is a constant, the result replaces the
// operation, because the compiler compiles that case wrongly (see jumps.go).
func (r *rewriter) logical(at *ast.Expr, e *ast.LogicalOpExpr) {
	r.expr(&e.Lhs)
	r.expr(&e.Rhs)
	is, ok := truth(e.Lhs)
	switch {
	case !ok || r.scanning:
	case is == (e.Operator == "and"):
		oneValue(e.Rhs)
		*at = e.Rhs
	default:
		*at = e.Lhs
	}
}

// condition rewrites a condition. The code of a condition must not begin with a jump (see
// jumps.go). The code of nil and of false does. So the method
// condition replaces nil and false by the Lua expression (not "").
func (r *rewriter) condition(at *ast.Expr) {
	r.expr(at)
	if is, ok := truth(*at); ok && !is && !r.scanning {
		*at = placed(*at, &ast.UnaryNotOpExpr{Expr: placed(*at, &ast.StringExpr{})})
	}
}

// truth returns whether a constant counts as true. ok is false if the expression is not a constant.
func truth(e ast.Expr) (is, ok bool) {
	switch e.(type) {
	case *ast.NilExpr, *ast.FalseExpr:
		return false, true
	case *ast.TrueExpr, *ast.StringExpr, *ast.NumberExpr:
		return true, true
	}
	return false, false
}
