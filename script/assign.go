package script

import (
	"fmt"

	"github.com/yuin/gopher-lua/ast"
)

// The compiler of gopher-lua assigns to one variable before it has read the value of the next. It
// also treats the values of a for statement differently from Lua. This file rewrites such
// statements into simpler ones, which the compiler compiles correctly. A box is a table that holds
// a variable which closures share (capture.go).

// assign splits an assignment into two steps, unless isSimple is true. The first step stores the
// values, and the operands of the targets, in temporaries. The second step assigns the values
// to the targets, the last target first.
func (r *rewriter) assign(at *ast.Stmt, s *ast.AssignStmt) {
	if r.scanning || len(s.Lhs) == 1 && len(s.Rhs) == 1 && r.isSimple(s.Lhs[0], s.Rhs[0]) {
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
			field := placed(get, &ast.AttrGetExpr{Object: get.Object, Key: get.Key})
			if !r.isLate(get.Object, s.Lhs[i+1:]) {
				field.Object = keep("table", i, get.Object)
			}
			if !isPlain(get.Key) && !r.isLate(get.Key, s.Lhs[i+1:]) {
				field.Key = keep("key", i, get.Key)
			}
			target = field
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

// isSimple reports whether the compiler compiles this assignment of one value correctly.
func (r *rewriter) isSimple(target, value ast.Expr) bool {
	switch v := value.(type) {
	case *ast.FuncCallExpr:
		v.AdjustRet = false // else x = (f(x)) loses x before the call; x takes one value anyway
	case *ast.LogicalOpExpr:
		if r.isLocal(target) {
			return false // in x = (a or b) and x the compiler reads a for the last x
		}
	}
	get, ok := target.(*ast.AttrGetExpr)
	return !ok || isPlain(value) || r.isBox(get) || !r.isBox(get.Object) && !r.isBox(get.Key) && !r.isLocal(get.Key)
}

// isLate reports whether Lua reads an operand of a target only when it assigns the value. Lua does
// so if the operand is a local variable that is not assigned to before.
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

// If a target is a variable or the content of a box, variableOf returns the variable. Otherwise it
// returns nil.
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

// isLocal reports whether an expression is a local variable of the current function, without a box.
func (r *rewriter) isLocal(e ast.Expr) bool {
	v, ok := e.(*ast.IdentExpr)
	return ok && r.scopes.isLocal(v.Value, false)
}

// isBox reports whether an expression is the content of a box of a local variable of the current
// function.
func (r *rewriter) isBox(e ast.Expr) bool {
	get, ok := e.(*ast.AttrGetExpr)
	if !ok {
		return false
	}
	v, ok := get.Object.(*ast.IdentExpr)
	return ok && r.scopes.isLocal(v.Value, true)
}

// isAnyBox reports whether an expression is the content of a box of a variable of any function.
func (r *rewriter) isAnyBox(get *ast.AttrGetExpr) bool {
	v, ok := get.Object.(*ast.IdentExpr)
	return ok && r.scopes.hasBox(v.Value)
}

// isPlain reports whether an expression is a constant.
func isPlain(e ast.Expr) bool {
	_, ok := truth(e)
	return ok
}

// checkBounds inserts a conversion of the bounds before a loop, unless they are certainly numbers.
func (r *rewriter) checkBounds(at *ast.Stmt, s *ast.NumberForStmt) {
	if r.scanning {
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

// isNumber reports whether an expression is certainly a number, and calls no function of the
// script.
func isNumber(e ast.Expr) bool {
	if c, ok := e.(*ast.FuncCallExpr); ok && c.Func != nil {
		fn, ok := c.Func.(*ast.IdentExpr)
		_, simple := c.Args[0].(*ast.IdentExpr)
		return ok && fn.Value == lengthName && simple
	}
	_, ok := constantValue(e)
	return ok
}

// completeIterator gives the loop for … in three values, unless its last expression gives the
// missing ones. The compiler does not initialize missing values. completeIterator also adds
// names until there are as many as expressions, or three. If there are fewer names, the compiler
// drops a call that gives the last values.
func (r *rewriter) completeIterator(s *ast.GenericForStmt) {
	if r.scanning {
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

// oneValue truncates an expression to its first value.
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
