package script

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// chunkName is the name of a script in the errors of Redis.
const chunkName = "user_script"

func compileScript(source string) (*compiled, error) {
	if strings.HasPrefix(source, "#!") {
		return nil, Error("ERR a script with a first line #! is not served, because flags of scripts have no effect here")
	}
	proto, err := compileChunk(source)
	if err != nil {
		return nil, Error("ERR Error compiling script (new function): " + err.Error())
	}
	return &compiled{sha: shaOf(source), proto: proto, bytes: shrink(proto)}, nil
}

// shrink releases the unused capacity of a function and its inner functions. It returns their
// approximate size in bytes.
func shrink(p *lua.FunctionProto) (bytes int) {
	p.Code = slices.Clone(p.Code)
	p.Constants = slices.Clone(p.Constants)
	p.FunctionPrototypes = slices.Clone(p.FunctionPrototypes)
	p.DbgSourcePositions = slices.Clone(p.DbgSourcePositions)
	p.DbgLocals = slices.Clone(p.DbgLocals)
	p.DbgCalls = slices.Clone(p.DbgCalls)
	p.DbgUpvalues = slices.Clone(p.DbgUpvalues)
	bytes = 512 + 4*cap(p.Code) + 8*cap(p.DbgSourcePositions) + 32*cap(p.DbgCalls) + 64*len(p.DbgLocals)
	for _, c := range p.Constants {
		bytes += 64 + len(c.String())
	}
	for _, f := range p.FunctionPrototypes {
		bytes += shrink(f)
	}
	return bytes
}

// compileChunk compiles Lua text. Its errors have Lua's texts.
func compileChunk(text string) (proto *lua.FunctionProto, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			proto, err = nil, sourceError(1, "%v", broken)
		}
	}()
	locals, err := scan(text)
	if err != nil {
		return nil, err
	}
	chunk, err := parse.Parse(strings.NewReader(text), chunkName)
	if err != nil {
		return nil, syntaxError(err, text)
	}
	r := rewriter{strings: map[string]struct{}{}, locals: locals}
	if chunk, err = r.chunk(chunk); err != nil {
		return nil, err
	}
	proto, err = lua.Compile(chunk, chunkName)
	if err != nil {
		return nil, compileError(err)
	}
	proto.IsVarArg &^= lua.VarArgNeedsArg // else each run creates an unused table
	return proto, checkUpvalues(proto)
}

// checkUpvalues refuses functions that capture more variables than Lua allows.
func checkUpvalues(p *lua.FunctionProto) error {
	const most = 60
	if len(p.DbgUpvalues) > most {
		return sourceError(p.LineDefined, "function at line %d has more than %d upvalues", p.LineDefined, most)
	}
	for _, f := range p.FunctionPrototypes {
		if err := checkUpvalues(f); err != nil {
			return err
		}
	}
	return nil
}

// sourceError returns an error at a line of the script.
func sourceError(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", chunkName, line, fmt.Errorf(format, args...))
}

func syntaxError(err error, text string) error {
	e, ok := errors.AsType[*parse.Error](err)
	if !ok {
		return sourceError(1, "%w", err)
	}
	line, near := e.Pos.Line, e.Token
	if line == parse.EOF {
		line, near = 1+strings.Count(text, "\n"), "<eof>"
	}
	return sourceError(line, "%s near '%s'", strings.TrimSpace(e.Message), near)
}

func compileError(err error) error {
	e, ok := errors.AsType[*lua.CompileError](err)
	if !ok {
		return sourceError(1, "%w", err)
	}
	return sourceError(e.Line, "%s", e.Message)
}
