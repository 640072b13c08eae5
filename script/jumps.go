package script

import (
	"github.com/yuin/gopher-lua/ast"
)

// If the target of a jump is another jump, the compiler redirects the first jump to the target of
// the second. It does so wrongly if it has already redirected the second. A loop jumps back to its
// first instruction. So that instruction must not be a jump.

// beginLoop inserts a statement before the body of a loop that may begin with a jump.
func (r *rewriter) beginLoop(s ast.Stmt, body *[]ast.Stmt) {
	// A numeric loop begins with an instruction of its own.
	if _, ok := s.(*ast.NumberForStmt); ok || r.scanning {
		return
	}
	if len(*body) > 0 && beginsWithoutJump((*body)[0]) {
		return
	}
	first := placed(s, &ast.LocalAssignStmt{Names: []string{"(begin)"}})
	*body = append([]ast.Stmt{first}, *body...)
}

func beginsWithoutJump(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt, *ast.LocalAssignStmt, *ast.FuncCallStmt, *ast.ReturnStmt, *ast.FuncDefStmt,
		*ast.NumberForStmt, *ast.GenericForStmt:
		return true
	case *ast.IfStmt:
		return !isPlain(s.Condition) // the compiler emits no instruction for a constant condition
	case *ast.WhileStmt:
		return !isPlain(s.Condition)
	case *ast.DoBlockStmt:
		return len(s.Stmts) > 0 && beginsWithoutJump(s.Stmts[0])
	}
	return false
}
