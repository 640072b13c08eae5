package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/simba-resp/simba-resp/resp"
)

const (
	// maxCalls is the maximum depth of calls.
	maxCalls = 1000
	// minRegisters and maxRegisters are the initial and the maximum size of the stack, in values.
	minRegisters = 1 << 10
	maxRegisters = 1 << 15
	// maxString is the maximum length of a string that a script creates, in bytes.
	maxString = 1 << 20
)

// state is a Lua state with the sandbox. It runs one script after the other.
type state struct {
	*meter
	*sandbox
	lua    *lua.LState
	logger *slog.Logger

	// Of the current run:
	host   Host
	broken bool     // gopher-lua panicked: the state must not be reused
	args   [][]byte // arguments of a call
	arena  []byte   // memory of args
}

func newState(logger *slog.Logger, m *meter) *state {
	s := &state{meter: m, logger: logger}
	s.lua = lua.NewState(lua.Options{
		SkipOpenLibs:    true,
		CallStackSize:   maxCalls,
		RegistrySize:    minRegisters,
		RegistryMaxSize: maxRegisters,
	})
	s.sandbox = s.newSandbox()
	s.lua.SetContext(m)
	return s
}

// run runs a script and writes its reply to w. It returns whether the state can be reused.
func (s *state) run(ctx context.Context, script *compiled, c Call, h Host, w *resp.Writer, started int64) (usable bool, err error) {
	s.begin(ctx, started, c.Yield)
	s.host, s.broken = h, false
	L := s.lua
	s.globals.RawSetString("KEYS", tableOf(c.Keys))
	s.globals.RawSetString("ARGV", tableOf(c.Args))
	L.Push(L.NewFunctionFromProto(script.proto))
	failed := protected(L)
	if failed == nil {
		err = s.reply(w, L.Get(-1))
		L.SetTop(0)
	}
	s.globals.RawSetString("KEYS", lua.LFalse) // cheaper than nil
	s.globals.RawSetString("ARGV", lua.LFalse)
	s.host, s.yieldCPU = nil, nil
	if failed == nil && s.stopped == nil {
		return err == nil && !s.broken, err
	}
	if failed != nil {
		s.raised(failed)
		L.SetTop(0)
	}
	return s.stopped == nil && !s.broken, s.explain(failed, script.sha)
}

// protected calls the function on the stack. gopher-lua may panic while it formats an error.
func protected(L *lua.LState) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("%s: the stack is too large", chunkName)
		}
	}()
	return L.PCall(0, 1, nil)
}

func tableOf(values [][]byte) *lua.LTable {
	t := newTable(len(values), 0)
	for i, v := range values {
		t.RawSetInt(i+1, lua.LString(v))
	}
	return t
}

// newTable returns a table with room for elements.
func newTable(array, hash int) *lua.LTable { return (*lua.LState)(nil).CreateTable(array, hash) }

// explain returns the error of a failed script, with the text of Redis.
func (s *state) explain(failed error, sha string) error {
	var e *lua.ApiError
	errors.As(failed, &e)
	var text string
	switch {
	case errors.Is(s.stopped, context.Canceled), errors.Is(s.stopped, context.DeadlineExceeded):
		return s.stopped
	case s.stopped != nil:
		text = "ERR " + s.stopped.Error()
	case e == nil:
		text = "ERR " + failed.Error()
	default:
		text = errorText(e.Object)
	}
	text += " script: " + sha
	if e != nil {
		if line, ok := innermost(e.StackTrace); ok {
			text += ", on @" + chunkName + ":" + line
		}
	}
	if s.stopped != nil {
		return &StoppedError{Error(text + ".")}
	}
	return Error(text + ".")
}

// errorText returns the text of the error reply for a raised value.
func errorText(v lua.LValue) string {
	if t, ok := v.(*lua.LTable); ok {
		if text, ok := t.RawGetString("err").(lua.LString); ok {
			return cString(string(text))
		}
		return "ERR unknown error"
	}
	if text, ok := plainString(v); ok {
		return "ERR " + cString(text)
	}
	return "ERR " + v.String()
}

// innermost returns the line of the innermost Lua function in a stack trace.
func innermost(trace string) (line string, ok bool) {
	for frame := range strings.Lines(trace) {
		where, _, _ := strings.Cut(strings.TrimSpace(frame), ": in ")
		if line, ok := strings.CutPrefix(where, chunkName+":"); ok {
			return line, true
		}
	}
	return "", false
}
