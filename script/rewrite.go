package script

import (
	"fmt"

	"github.com/yuin/gopher-lua/ast"
)

// Operators whose work the virtual machine does not bound, and which it does not do as Lua
// 5.1, are compiled as calls of functions of these names. No script can spell them.
const (
	concatName = ".."
	lengthName = "#"
)

const (
	// maxSyntaxLevels is how deep a script may be nested: the compiler recurses, and a Go
	// stack that overflows ends the process.
	maxSyntaxLevels = 1000
	// maxConstantWork bounds (different constants) × (constants), because the compiler looks for
	// each constant among all of them.
	maxConstantWork = 20_000_000
	// maxFunctions bounds those of a chunk: the compiler makes room for 1,024 instructions in each.
	maxFunctions = 2000
)

// rewriter rewrites a syntax tree in place, and finds what is too large to be compiled.
type rewriter struct {
	name      string
	depth     int
	constants int
	functions int
	strings   map[string]struct{}
	err       error
}

func (r *rewriter) enter(line int) bool {
	r.depth++
	if r.depth > maxSyntaxLevels && r.err == nil {
		r.err = fmt.Errorf("%s:%d: chunk has too many syntax levels", r.name, line)
	}
	return r.err == nil
}

func (r *rewriter) leave() { r.depth-- }

func (r *rewriter) constant(text string, line int) {
	r.constants++
	r.strings[text] = struct{}{}
	if r.constants*len(r.strings) > maxConstantWork && r.err == nil {
		r.err = fmt.Errorf("%s:%d: constant table overflow", r.name, line)
	}
}

func (r *rewriter) function(f *ast.FunctionExpr) {
	r.functions++
	if r.functions > maxFunctions && r.err == nil {
		r.err = fmt.Errorf("%s:%d: chunk has too many functions", r.name, f.Line())
	}
	r.block(f.Stmts)
}

func (r *rewriter) block(stmts []ast.Stmt) {
	for _, s := range stmts {
		r.stmt(s)
	}
}

func (r *rewriter) stmt(s ast.Stmt) {
	defer r.leave()
	if !r.enter(s.Line()) {
		return
	}
	switch s := s.(type) {
	case *ast.AssignStmt:
		r.exprs(s.Lhs)
		r.exprs(s.Rhs)
	case *ast.LocalAssignStmt:
		r.exprs(s.Exprs)
	case *ast.FuncCallStmt:
		r.expr(&s.Expr)
	case *ast.DoBlockStmt:
		r.block(s.Stmts)
	case *ast.WhileStmt:
		r.expr(&s.Condition)
		r.block(s.Stmts)
	case *ast.RepeatStmt:
		r.expr(&s.Condition)
		r.block(s.Stmts)
	case *ast.IfStmt:
		r.expr(&s.Condition)
		r.block(s.Then)
		r.block(s.Else)
	case *ast.NumberForStmt:
		r.expr(&s.Init)
		r.expr(&s.Limit)
		r.expr(&s.Step)
		r.block(s.Stmts)
	case *ast.GenericForStmt:
		r.exprs(s.Exprs)
		r.block(s.Stmts)
	case *ast.FuncDefStmt:
		r.expr(&s.Name.Func)
		r.expr(&s.Name.Receiver)
		r.function(s.Func)
	case *ast.ReturnStmt:
		r.exprs(s.Exprs)
	}
}

func (r *rewriter) exprs(list []ast.Expr) {
	for i := range list {
		r.expr(&list[i])
	}
}

func (r *rewriter) expr(at *ast.Expr) {
	if *at == nil {
		return
	}
	defer r.leave()
	if !r.enter((*at).Line()) {
		return
	}
	switch e := (*at).(type) {
	case *ast.NumberExpr:
		r.constant(e.Value, e.Line())
	case *ast.StringExpr:
		r.constant(e.Value, e.Line())
	case *ast.IdentExpr:
		r.constant(e.Value, e.Line())
	case *ast.AttrGetExpr:
		r.expr(&e.Object)
		r.expr(&e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			r.expr(&f.Key)
			r.expr(&f.Value)
		}
	case *ast.FuncCallExpr:
		r.expr(&e.Func)
		r.expr(&e.Receiver)
		r.constant(e.Method, e.Line())
		r.exprs(e.Args)
	case *ast.LogicalOpExpr:
		r.expr(&e.Lhs)
		r.expr(&e.Rhs)
	case *ast.RelationalOpExpr:
		r.expr(&e.Lhs)
		r.expr(&e.Rhs)
	case *ast.ArithmeticOpExpr:
		r.expr(&e.Lhs)
		r.expr(&e.Rhs)
	case *ast.UnaryMinusOpExpr:
		r.expr(&e.Expr)
	case *ast.UnaryNotOpExpr:
		r.expr(&e.Expr)
	case *ast.FunctionExpr:
		r.function(e)
	case *ast.UnaryLenOpExpr:
		r.expr(&e.Expr)
		*at = call(e, lengthName, []ast.Expr{e.Expr})
	case *ast.StringConcatOpExpr:
		r.concat(at, e)
	}
}

// maxOperands is how many operands of .. become one call: they all need a register.
const maxOperands = 50

// concat makes one call of a..b..c, which the parser has read as a..(b..c).
func (r *rewriter) concat(at *ast.Expr, e *ast.StringConcatOpExpr) {
	operands := []ast.Expr{e.Lhs}
	rest := e.Rhs
	for len(operands) < maxOperands-1 {
		next, ok := rest.(*ast.StringConcatOpExpr)
		if !ok {
			break
		}
		operands = append(operands, next.Lhs)
		rest = next.Rhs
	}
	operands = append(operands, rest)
	r.exprs(operands)
	*at = call(e, concatName, operands)
}

// call is the expression name(args…), where each argument is one value.
func call(from ast.Expr, name string, args []ast.Expr) ast.Expr {
	fn := &ast.IdentExpr{Value: name}
	end := &ast.TrueExpr{} // behind it, a call as the last operand gives one value
	c := &ast.FuncCallExpr{Func: fn, Args: append(args, end), AdjustRet: true}
	for _, node := range []ast.Expr{fn, end, c} {
		node.SetLine(from.Line())
		node.SetLastLine(from.LastLine())
	}
	return c
}
