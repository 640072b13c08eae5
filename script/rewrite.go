package script

import (
	"slices"

	"github.com/yuin/gopher-lua/ast"
)

// Operators that the virtual machine does not bound, or computes differently from Lua 5.1, are
// compiled as calls. These are the names of the functions, which no script can use.
const (
	concatName = ".."
	lengthName = "#"
	boundsName = "for"
	// lateName is the prefix of the names of arithmetic operators that take their operands in the
	// reverse order. So Lua reads the first operand last.
	lateName = "late "
)

const (
	// maxSyntaxLevels is the maximum nesting of a script. The compiler recurses, and a stack
	// overflow in Go ends the process.
	maxSyntaxLevels = 1000
	// maxConstantWork bounds (different constants) × (constants), because the compiler searches
	// each constant among all others.
	maxConstantWork = 20_000_000
	// maxFunctions is the maximum number of functions in a chunk. The compiler allocates room for
	// 1,024 instructions in each.
	maxFunctions = 2000
)

// rewriter rewrites a syntax tree in place, so that the virtual machine runs it as Lua 5.1. It
// walks the tree twice in the order of the source. The first walk only collects the usage of
// variables, and refuses source that is too large.
type rewriter struct {
	scanning  bool // during the first walk
	depth     int
	constants int
	functions int
	strings   map[string]struct{}
	scopes    scopes
	locals    []bool // for each later "local", whether "function" follows it
	err       error
}

func (r *rewriter) chunk(stmts []ast.Stmt) ([]ast.Stmt, error) {
	locals := r.locals
	r.scanning = true
	r.scopes.openFunction()
	r.stmts(stmts)
	r.scopes.closeFunction()
	if r.err != nil {
		return nil, r.err
	}
	r.scanning, r.locals, r.constants, r.functions = false, locals, 0, 0
	r.scopes = scopes{usage: r.scopes.usage}
	r.scopes.openFunction()
	stmts = r.stmts(stmts)
	r.scopes.closeFunction()
	return stmts, r.err
}

// refuse keeps the first error.
func (r *rewriter) refuse(line int, format string, args ...any) {
	if r.err == nil {
		r.err = sourceError(line, format, args...)
	}
}

func (r *rewriter) enter(line int) bool {
	r.depth++
	if r.depth > maxSyntaxLevels {
		r.refuse(line, "chunk has too many syntax levels")
	}
	return r.err == nil
}

func (r *rewriter) leave() { r.depth-- }

func (r *rewriter) constant(text string, line int) {
	r.constants++
	r.strings[text] = struct{}{}
	if r.constants*len(r.strings) > maxConstantWork {
		r.refuse(line, "constant table overflow")
	}
}

func (r *rewriter) function(f *ast.FunctionExpr, self bool) {
	r.functions++
	if r.functions > maxFunctions {
		r.refuse(f.Line(), "chunk has too many functions")
	}
	names := f.ParList.Names
	if self {
		names = append([]string{"self"}, names...)
	}
	if f.ParList.HasVargs {
		names = append(slices.Clip(names), "arg")
	}
	r.scopes.openFunction()
	boxes := r.declare(f, names)
	f.Stmts = append(boxes, r.stmts(f.Stmts)...)
	r.scopes.closeFunction()
}

func (r *rewriter) block(stmts *[]ast.Stmt) {
	r.scopes.open(false)
	*stmts = r.stmts(*stmts)
	r.scopes.close()
}

// loop rewrites the body of a loop that declares names. until is the condition of a repeat, which
// is in the scope of the body.
func (r *rewriter) loop(s ast.Stmt, names []string, body *[]ast.Stmt, until *ast.Expr) {
	r.scopes.open(true)
	boxes := r.declare(s, names)
	*body = append(boxes, r.stmts(*body)...)
	if until != nil {
		r.condition(until)
	}
	r.closeLoop(s, body)
	r.beginLoop(s, body)
}

func (r *rewriter) stmts(stmts []ast.Stmt) []ast.Stmt {
	var all []ast.Stmt // nil = no statements were added
	for i := range stmts {
		more := r.stmt(&stmts[i])
		if more != nil && all == nil {
			all = slices.Clone(stmts[:i])
		}
		if all != nil {
			all = append(append(all, stmts[i]), more...)
		}
	}
	if all != nil {
		return all
	}
	return stmts
}

// stmt rewrites a statement, and returns statements to insert after it.
func (r *rewriter) stmt(at *ast.Stmt) (more []ast.Stmt) {
	defer r.leave()
	if !r.enter((*at).Line()) {
		return nil
	}
	switch s := (*at).(type) {
	case *ast.AssignStmt:
		r.exprs(s.Lhs)
		r.assigned(s.Lhs)
		r.exprs(s.Rhs)
		r.assign(at, s)
	case *ast.LocalAssignStmt:
		return r.local(s)
	case *ast.FuncCallStmt:
		r.expr(&s.Expr)
	case *ast.DoBlockStmt:
		r.block(&s.Stmts)
	case *ast.WhileStmt:
		r.condition(&s.Condition)
		r.loop(s, nil, &s.Stmts, nil)
	case *ast.RepeatStmt:
		r.loop(s, nil, &s.Stmts, &s.Condition)
	case *ast.IfStmt:
		r.condition(&s.Condition)
		r.block(&s.Then)
		r.block(&s.Else)
	case *ast.NumberForStmt:
		r.expr(&s.Init)
		r.expr(&s.Limit)
		r.expr(&s.Step)
		r.loop(s, []string{s.Name}, &s.Stmts, nil)
		r.checkBounds(at, s)
	case *ast.GenericForStmt:
		r.exprs(s.Exprs)
		r.loop(s, s.Names, &s.Stmts, nil)
		r.completeIterator(s)
	case *ast.FuncDefStmt:
		r.expr(&s.Name.Func)
		r.assigned([]ast.Expr{s.Name.Func})
		r.expr(&s.Name.Receiver)
		r.function(s.Func, s.Name.Func == nil)
	case *ast.ReturnStmt:
		r.exprs(s.Exprs)
	case *ast.BreakStmt:
		r.scopes.breakLoop()
	}
	return nil
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
		r.number(e)
		r.constant(e.Value, e.Line())
	case *ast.StringExpr:
		r.constant(e.Value, e.Line())
	case *ast.IdentExpr:
		r.constant(e.Value, e.Line())
		r.use(at, e)
	case *ast.AttrGetExpr:
		r.expr(&e.Object)
		r.expr(&e.Key)
	case *ast.TableExpr:
		for _, f := range e.Fields {
			r.expr(&f.Key)
			r.expr(&f.Value)
			if f.Key != nil && !r.scanning {
				oneValue(f.Value) // else the compiler appends further values
			}
		}
	case *ast.FuncCallExpr:
		r.expr(&e.Func)
		r.expr(&e.Receiver)
		r.constant(e.Method, e.Line())
		r.exprs(e.Args)
	case *ast.LogicalOpExpr:
		r.logical(at, e)
	case *ast.RelationalOpExpr:
		r.expr(&e.Lhs)
		r.expr(&e.Rhs)
		r.relation(e)
	case *ast.ArithmeticOpExpr:
		r.arithmetic(at, e)
	case *ast.UnaryMinusOpExpr:
		r.minus(at, e)
	case *ast.UnaryNotOpExpr:
		r.not(at, e)
	case *ast.FunctionExpr:
		r.function(e, false)
	case *ast.UnaryLenOpExpr:
		r.expr(&e.Expr)
		if !r.scanning {
			*at = call(e, lengthName, []ast.Expr{e.Expr})
		}
	case *ast.StringConcatOpExpr:
		r.concat(at, e)
	}
}

// maxOperands is the maximum number of operands in one call of .., because each needs a register.
const maxOperands = 50

// concat rewrites a..b..c, which the parser reads as a..(b..c), to one call.
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
	if r.scanning {
		return
	}
	*at = call(e, concatName, operands)
}

// call returns the expression name(args…). Each argument is one value.
func call(from ast.PositionHolder, name string, args []ast.Expr) *ast.FuncCallExpr {
	// A call as the last argument would give all its values. So the last argument is a constant.
	end := &ast.TrueExpr{}
	c := &ast.FuncCallExpr{Func: ident(from, name), Args: append(args, placed(from, end)), AdjustRet: true}
	return placed(from, c)
}

func ident(from ast.PositionHolder, name string) *ast.IdentExpr {
	return placed(from, &ast.IdentExpr{Value: name})
}

// placed gives a new node the lines of its origin.
func placed[N ast.PositionHolder](from ast.PositionHolder, node N) N {
	node.SetLine(from.Line())
	node.SetLastLine(from.LastLine())
	return node
}
