package script

import (
	"fmt"

	"github.com/yuin/gopher-lua/ast"
)

// The compiler of gopher-lua mixes up assignments: it assigns to one variable before it has read
// what is assigned to the next, and forgets to close captured variables at some breaks. What is
// here turns statements into simpler ones that it compiles as Lua 5.1 runs them.

// assign leaves an assignment of one simple value as it is, and makes two steps of any other:
// all operands and values into temporaries, then from these into the targets, the last first.
func (r *rewriter) assign(at *ast.Stmt, s *ast.AssignStmt) {
	if len(s.Lhs) == 1 && len(s.Rhs) == 1 {
		if c, ok := s.Rhs[0].(*ast.FuncCallExpr); ok {
			c.AdjustRet = false // it gives one value anyway, and (f(x)) would be compiled into x
		}
		if target, ok := s.Lhs[0].(*ast.AttrGetExpr); !ok || !r.isLocal(target.Key) || isPlain(s.Rhs[0]) {
			return
		}
	}
	first := placed(s, &ast.LocalAssignStmt{})
	keep := func(kind string, i int, value ast.Expr) ast.Expr {
		name := fmt.Sprintf("(%s %d)", kind, i)
		first.Names = append(first.Names, name)
		first.Exprs = append(first.Exprs, value)
		return ident(value, name)
	}
	targets := make([]ast.Expr, len(s.Lhs))
	for i, target := range s.Lhs {
		if get, ok := target.(*ast.AttrGetExpr); ok {
			place := placed(get, &ast.AttrGetExpr{Object: get.Object, Key: get.Key})
			if !r.isLate(get.Object, s.Lhs[i+1:]) {
				place.Object = keep("table", i, get.Object)
			}
			if !isPlain(get.Key) && !r.isLate(get.Key, s.Lhs[i+1:]) {
				place.Key = keep("key", i, get.Key)
			}
			target = place
		}
		targets[i] = target
	}
	first.Exprs = append(first.Exprs, s.Rhs...)
	stmts := []ast.Stmt{first}
	for i := range targets {
		first.Names = append(first.Names, fmt.Sprintf("(value %d)", i))
	}
	for i := len(targets) - 1; i >= 0; i-- {
		value := ident(targets[i], fmt.Sprintf("(value %d)", i))
		one := &ast.AssignStmt{Lhs: []ast.Expr{targets[i]}, Rhs: []ast.Expr{value}}
		stmts = append(stmts, placed(s, one))
	}
	*at = placed(s, &ast.DoBlockStmt{Stmts: stmts})
}

// isLate reports whether an operand of a target is read when the value is assigned. Lua does so
// with a local variable, if that is not assigned to before.
func (r *rewriter) isLate(operand ast.Expr, assignedBefore []ast.Expr) bool {
	if !r.isLocal(operand) {
		return false
	}
	for _, target := range assignedBefore {
		if v, ok := target.(*ast.IdentExpr); ok && v.Value == operand.(*ast.IdentExpr).Value {
			return false
		}
	}
	return true
}

func (r *rewriter) isLocal(e ast.Expr) bool {
	v, ok := e.(*ast.IdentExpr)
	return ok && r.scopes.isLocal(v.Value)
}

// isPlain reports whether an expression neither runs other code nor depends on what does.
func isPlain(e ast.Expr) bool {
	switch e.(type) {
	case *ast.NumberExpr, *ast.StringExpr, *ast.TrueExpr, *ast.FalseExpr, *ast.NilExpr:
		return true
	}
	return false
}

// local rewrites a declaration. The parser makes the same of "local function f" and of
// "local f = function", but only the first can call itself.
func (r *rewriter) local(s *ast.LocalAssignStmt) {
	isFunction := len(r.locals) > 0 && r.locals[0]
	r.locals = r.locals[min(1, len(r.locals)):]
	if isFunction {
		r.scopes.declare(s.Names...)
		r.exprs(s.Exprs)
		return
	}
	r.exprs(s.Exprs)
	r.scopes.declare(s.Names...)
	if len(s.Names) == 1 && len(s.Exprs) == 1 {
		if f, ok := s.Exprs[0].(*ast.FunctionExpr); ok {
			s.Exprs = append(s.Exprs, placed(f, &ast.NilExpr{})) // the compiler knows the first by its one value
		}
	}
}

// checkBounds has the bounds of a loop made numbers before it, if they may be something else.
func checkBounds(at *ast.Stmt, s *ast.NumberForStmt) {
	if s.Step == nil {
		s.Step = placed(s.Init, &ast.NumberExpr{Value: "1"})
	}
	if isNumber(s.Init) && isNumber(s.Limit) && isNumber(s.Step) {
		return
	}
	bounds := call(s, boundsName, []ast.Expr{s.Init, s.Limit, s.Step})
	bounds.AdjustRet = false
	names := []string{"(initial value)", "(limit)", "(step)"}
	first := &ast.LocalAssignStmt{Names: names, Exprs: []ast.Expr{bounds}}
	s.Init, s.Limit, s.Step = ident(s, names[0]), ident(s, names[1]), ident(s, names[2])
	*at = placed(s, &ast.DoBlockStmt{Stmts: []ast.Stmt{placed(s, first), s}})
}

// isNumber reports whether an expression can only give a number, and calls nothing of the script.
func isNumber(e ast.Expr) bool {
	if c, ok := e.(*ast.FuncCallExpr); ok && c.Func != nil {
		fn, ok := c.Func.(*ast.IdentExpr)
		_, simple := c.Args[0].(*ast.IdentExpr)
		return ok && fn.Value == lengthName && simple
	}
	_, ok := constantValue(e)
	return ok
}

// completeIterator gives a loop as many values as it has hidden variables: the compiler leaves what
// is missing as it was, and forgets the last call if there are fewer names than values.
func completeIterator(s *ast.GenericForStmt) {
	last := s.Exprs[len(s.Exprs)-1]
	if !isMultiple(last) {
		for len(s.Exprs) < 3 {
			s.Exprs = append(s.Exprs, placed(last, &ast.NilExpr{}))
		}
	}
	for len(s.Names) < len(s.Exprs) && len(s.Names) < 3 {
		s.Names = append(s.Names, fmt.Sprintf("(name %d)", len(s.Names)))
	}
}

func isMultiple(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		return !e.AdjustRet
	case *ast.Comma3Expr:
		return !e.AdjustRet
	}
	return false
}

// closeLoop ends the scope of a loop. If a break may leave variables to close, it gives the loop
// one that a function captures, which never runs: then the compiler closes them all.
func (r *rewriter) closeLoop(body *[]ast.Stmt) {
	if !r.scopes.close().closes {
		return
	}
	r.functions++
	const name = "(captured)"
	from := (*body)[0]
	back := placed(from, &ast.ReturnStmt{Exprs: []ast.Expr{ident(from, name)}})
	capture := placed(from, &ast.FunctionExpr{ParList: &ast.ParList{}, Stmts: []ast.Stmt{back}})
	never := &ast.IfStmt{
		Condition: placed(from, &ast.FalseExpr{}),
		Then:      []ast.Stmt{placed(from, &ast.LocalAssignStmt{Names: []string{"(never)"}, Exprs: []ast.Expr{capture}})},
	}
	declare := placed(from, &ast.LocalAssignStmt{Names: []string{name}})
	*body = append([]ast.Stmt{declare, placed(from, never)}, *body...)
}
