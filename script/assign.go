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
	if r.looks || len(s.Lhs) == 1 && len(s.Rhs) == 1 && r.isSimple(s.Lhs[0], s.Rhs[0]) {
		return
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
		if get, ok := target.(*ast.AttrGetExpr); ok && !r.isAnyBox(get) {
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

// isSimple reports whether the compiler gets the assignment of one value right.
func (r *rewriter) isSimple(target, value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.FuncCallExpr:
		v.AdjustRet = false // it gives one value anyway, and x = (f(x)) would lose x before f is called
	case *ast.LogicalOpExpr:
		if r.isLocal(target) {
			return false // in x = (a or b) and x, the last x would be a
		}
	}
	get, ok := target.(*ast.AttrGetExpr)
	return !ok || isPlain(value) || r.isBox(get) || !r.isBox(get.Object) && !r.isBox(get.Key) && !r.isLocal(get.Key)
}

// isLate reports whether an operand of a target is read when the value is assigned. Lua does so
// with a local variable, if that is not assigned to before.
func (r *rewriter) isLate(operand ast.Expr, assignedBefore []ast.Expr) bool {
	if !r.isLocal(operand) && !r.isBox(operand) {
		return false
	}
	for _, target := range assignedBefore {
		if v := variableOf(target); v != nil && v.Value == variableOf(operand).Value {
			return false
		}
	}
	return true
}

// variableOf is the name of a variable that is assigned to, or of its box; nil = it is neither.
func variableOf(e ast.Expr) *ast.IdentExpr {
	if get, ok := e.(*ast.AttrGetExpr); ok {
		if _, ok := get.Key.(*ast.NumberExpr); !ok {
			return nil
		}
		e = get.Object
	}
	v, _ := e.(*ast.IdentExpr)
	return v
}

// isLocal reports whether an expression is a local variable of the function that is open, without a
// box.
func (r *rewriter) isLocal(e ast.Expr) bool {
	v, ok := e.(*ast.IdentExpr)
	return ok && r.scopes.isLocal(v.Value, false)
}

// isBox reports whether an expression is what is in the box of a local variable of the function
// that is open.
func (r *rewriter) isBox(e ast.Expr) bool {
	get, ok := e.(*ast.AttrGetExpr)
	if !ok {
		return false
	}
	v, ok := get.Object.(*ast.IdentExpr)
	return ok && r.scopes.isLocal(v.Value, true)
}

// isAnyBox is the same for a variable of any function.
func (r *rewriter) isAnyBox(get *ast.AttrGetExpr) bool {
	v, ok := get.Object.(*ast.IdentExpr)
	return ok && r.scopes.hasBox(v.Value)
}

// isPlain reports whether an expression neither runs other code nor depends on what does.
func isPlain(e ast.Expr) bool {
	switch e.(type) {
	case *ast.NumberExpr, *ast.StringExpr, *ast.TrueExpr, *ast.FalseExpr, *ast.NilExpr:
		return true
	}
	return false
}

// checkBounds has the bounds of a loop made numbers before it, if they may be something else.
func (r *rewriter) checkBounds(at *ast.Stmt, s *ast.NumberForStmt) {
	if r.looks {
		return
	}
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
func (r *rewriter) completeIterator(s *ast.GenericForStmt) {
	if r.looks {
		return
	}
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

// oneValue has an expression that gives several values give the first only.
func oneValue(e ast.Expr) {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
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
