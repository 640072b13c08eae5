package script

import (
	"github.com/yuin/gopher-lua/ast"
)

// The virtual machine detaches variables from the closures that have captured them. It does so at
// some breaks, and at each error for all active functions. So a variable that is captured and
// assigned to lives in a box, a table with one element. Closures capture the box, which does not
// change.

// box returns the expression for the content of a variable's box.
func box(from ast.PositionHolder, name string) *ast.AttrGetExpr {
	one := placed(from, &ast.NumberExpr{Value: "1"})
	return placed(from, &ast.AttrGetExpr{Object: ident(from, name), Key: one})
}

// putIntoBox returns the statement name = {name}.
func putIntoBox(from ast.PositionHolder, name string) ast.Stmt {
	return placed(from, &ast.AssignStmt{
		Lhs: []ast.Expr{ident(from, name)},
		Rhs: []ast.Expr{newBox(from, ident(from, name))},
	})
}

func newBox(from ast.PositionHolder, value ast.Expr) ast.Expr {
	return placed(from, &ast.TableExpr{Fields: []*ast.Field{{Value: value}}})
}

// declare declares names that have values already. It returns statements that put the values of
// boxed variables into their boxes.
func (r *rewriter) declare(from ast.PositionHolder, names []string) (boxes []ast.Stmt) {
	for _, name := range names {
		if boxed := r.scopes.declare(name); boxed && !r.scanning {
			boxes = append(boxes, putIntoBox(from, name))
		}
	}
	return boxes
}

func (r *rewriter) use(at *ast.Expr, e *ast.IdentExpr) {
	if boxed := r.scopes.use(e.Value); boxed && !r.scanning {
		*at = box(e, e.Value)
	}
}

func (r *rewriter) assigned(targets []ast.Expr) {
	for _, target := range targets {
		if v, ok := target.(*ast.IdentExpr); ok && r.scanning {
			r.scopes.assign(v.Value)
		}
	}
}

// local rewrites a declaration. Only "local function f" may call itself, and "local f = function"
// may not. The parser does not distinguish them.
func (r *rewriter) local(s *ast.LocalAssignStmt) (more []ast.Stmt) {
	isFunction := r.locals[0]
	r.locals = r.locals[1:]
	if !isFunction {
		r.exprs(s.Exprs)
		more = r.declare(s, s.Names)
		if len(s.Names) == 1 && len(s.Exprs) == 1 && !r.scanning {
			if f, ok := s.Exprs[0].(*ast.FunctionExpr); ok {
				// The compiler takes a single function value for "local function".
				s.Exprs = append(s.Exprs, placed(f, &ast.NilExpr{}))
			}
		}
		return more
	}
	boxed := r.scopes.declare(s.Names[0])
	r.exprs(s.Exprs)
	if !boxed || r.scanning {
		return nil
	}
	set := placed(s, &ast.AssignStmt{Lhs: []ast.Expr{box(s, s.Names[0])}, Rhs: s.Exprs})
	s.Exprs = []ast.Expr{newBox(s, placed(s, &ast.NilExpr{}))}
	return []ast.Stmt{set}
}

// closeLoop ends the scope of a loop. If a break may leave captured variables open, closeLoop adds
// a captured variable to the loop's own block. The compiler then closes all of them at the break.
func (r *rewriter) closeLoop(from ast.Stmt, body *[]ast.Stmt) {
	if !r.scopes.close().closes {
		return
	}
	r.functions++
	if r.scanning {
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
