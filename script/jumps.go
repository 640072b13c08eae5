package script

import (
	"github.com/yuin/gopher-lua/ast"
)

// The compiler shortens a jump to a jump, but takes one that it has shortened already for one that
// it has not: the jump back to the start of a loop must not find a jump there.

// condition rewrites a condition so that its code does not begin with a jump: the compiler makes one
// of a nil or false.
func (r *rewriter) condition(at *ast.Expr) {
	r.operand(at)
	if is, ok := truth(*at); ok && !is && !r.looks {
		*at = placed(*at, &ast.UnaryNotOpExpr{Expr: placed(*at, &ast.StringExpr{})})
	}
}

// foldLogical replaces an and or or whose first operand is a constant by what it gives: its code
// would begin with a jump.
func (r *rewriter) foldLogical(at *ast.Expr, e *ast.LogicalOpExpr) {
	is, ok := truth(e.Lhs)
	switch {
	case !ok || r.looks:
	case is == (e.Operator == "or"):
		r.settleZero(&e.Rhs)
		*at = e.Lhs
	default:
		oneValue(e.Rhs)
		*at = e.Rhs
	}
}

func (r *rewriter) foldNot(at *ast.Expr, e *ast.UnaryNotOpExpr) {
	is, ok := truth(e.Expr)
	switch {
	case !ok || r.looks:
	case is:
		*at = placed(e, &ast.FalseExpr{})
	default:
		*at = placed(e, &ast.TrueExpr{})
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

// beginLoop puts something before the body of a loop that may begin with a jump.
func (r *rewriter) beginLoop(s ast.Stmt, body *[]ast.Stmt) {
	if _, ok := s.(*ast.NumberForStmt); ok || r.looks { // it is not left to jumps
		return
	}
	if len(*body) > 0 && beginsWithoutJump((*body)[0]) {
		return
	}
	something := placed(s, &ast.LocalAssignStmt{Names: []string{"(begin)"}})
	*body = append([]ast.Stmt{something}, *body...)
}

func beginsWithoutJump(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt, *ast.LocalAssignStmt, *ast.FuncCallStmt, *ast.ReturnStmt, *ast.FuncDefStmt,
		*ast.NumberForStmt, *ast.GenericForStmt:
		return true
	case *ast.IfStmt:
		return hasCode(s.Condition)
	case *ast.WhileStmt:
		return hasCode(s.Condition)
	case *ast.DoBlockStmt:
		return len(s.Stmts) > 0 && beginsWithoutJump(s.Stmts[0])
	}
	return false
}

// hasCode reports whether the compiler makes something of a condition.
func hasCode(e ast.Expr) bool {
	_, constant := truth(e)
	return !constant
}
