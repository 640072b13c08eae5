package script

import (
	"github.com/yuin/gopher-lua/ast"
)

// The compiler shortens a jump to a jump, but takes one that it has shortened already for one that
// it has not: the jump back to the start of a loop must not find a jump there.

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
