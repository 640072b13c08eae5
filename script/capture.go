package script

import (
	"github.com/yuin/gopher-lua/ast"
)

// The machine loses the connection between a variable and the functions that have captured it: at
// any error, for all functions that run, and at some breaks. So a variable that is captured and
// assigned to is kept in a box, a table with one element: then only the box is captured, which
// stays the same.

// box is the expression for what is in the box of a variable.
func box(from ast.PositionHolder, name string) *ast.AttrGetExpr {
	one := placed(from, &ast.NumberExpr{Value: "1"})
	return placed(from, &ast.AttrGetExpr{Object: ident(from, name), Key: one})
}

// putIntoBox is the statement name = {name}.
func putIntoBox(from ast.PositionHolder, name string) ast.Stmt {
	return placed(from, &ast.AssignStmt{
		Lhs: []ast.Expr{ident(from, name)},
		Rhs: []ast.Expr{newBox(from, ident(from, name))},
	})
}

func newBox(from ast.PositionHolder, value ast.Expr) ast.Expr {
	return placed(from, &ast.TableExpr{Fields: []*ast.Field{{Value: value}}})
}

// declare declares names that have their values already, and returns statements that put those into
// boxes that need one.
func (r *rewriter) declare(from ast.PositionHolder, names []string) (boxes []ast.Stmt) {
	for _, name := range names {
		if boxed := r.scopes.declare(name); boxed && !r.looks {
			boxes = append(boxes, putIntoBox(from, name))
		}
	}
	return boxes
}

// use replaces a variable that has a box.
func (r *rewriter) use(at *ast.Expr, e *ast.IdentExpr) {
	if boxed := r.scopes.use(e.Value); boxed && !r.looks {
		*at = box(e, e.Value)
	}
}

// assigned notes which variables are assigned to.
func (r *rewriter) assigned(targets []ast.Expr) {
	for _, target := range targets {
		if v, ok := target.(*ast.IdentExpr); ok && r.looks {
			r.scopes.assign(v.Value)
		}
	}
}

// local rewrites a declaration. The parser makes the same of "local function f" and of
// "local f = function", but only the first can call itself.
func (r *rewriter) local(s *ast.LocalAssignStmt) (more []ast.Stmt) {
	isFunction := len(r.locals) > 0 && r.locals[0]
	r.locals = r.locals[min(1, len(r.locals)):]
	if !isFunction {
		r.exprs(s.Exprs)
		more = r.declare(s, s.Names)
		if len(s.Names) == 1 && len(s.Exprs) == 1 && !r.looks {
			if f, ok := s.Exprs[0].(*ast.FunctionExpr); ok {
				s.Exprs = append(s.Exprs, placed(f, &ast.NilExpr{})) // the compiler knows the first by its one value
			}
		}
		return more
	}
	boxed := r.scopes.declare(s.Names[0])
	r.exprs(s.Exprs)
	if !boxed || r.looks {
		return nil
	}
	set := placed(s, &ast.AssignStmt{Lhs: []ast.Expr{box(s, s.Names[0])}, Rhs: s.Exprs})
	s.Exprs = []ast.Expr{newBox(s, placed(s, &ast.NilExpr{}))}
	return []ast.Stmt{set}
}

// closeLoop ends the scope of a loop. If a break may leave variables to close, it gives the loop
// one that a function captures, which never runs: then the compiler closes them all.
func (r *rewriter) closeLoop(from ast.Stmt, body *[]ast.Stmt) {
	if !r.scopes.close().closes {
		return
	}
	r.functions++
	if r.looks {
		return
	}
	const name = "(captured)"
	back := placed(from, &ast.ReturnStmt{Exprs: []ast.Expr{ident(from, name)}})
	capture := placed(from, &ast.FunctionExpr{ParList: &ast.ParList{}, Stmts: []ast.Stmt{back}})
	never := &ast.IfStmt{
		Condition: placed(from, &ast.FalseExpr{}),
		Then:      []ast.Stmt{placed(from, &ast.LocalAssignStmt{Names: []string{"(never)"}, Exprs: []ast.Expr{capture}})},
	}
	declare := placed(from, &ast.LocalAssignStmt{Names: []string{name}})
	*body = append([]ast.Stmt{declare, placed(from, never)}, *body...)
}
