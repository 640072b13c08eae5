package script

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// The arguments of library functions, with the errors of Lua 5.1.

func typeName(L *lua.LState, n int) string {
	if n > L.GetTop() {
		return "no value"
	}
	return L.Get(n).Type().String()
}

// position is the place in a script of the function at a level of the stack, as it stands before an
// error; "" = that is a function in Go.
func position(L *lua.LState, level int) string {
	if where := L.Where(level); where != "" && !strings.HasPrefix(where, "[G]") {
		return where + " "
	}
	return ""
}

// raiseError raises an error of a library function, with the position of its caller.
func raiseError(L *lua.LState, format string, args ...any) {
	raise(L, position(L, 1)+fmt.Sprintf(format, args...))
}

// badArgument raises what Lua says of an argument that a function cannot take.
func badArgument(L *lua.LState, n int, why string) {
	name := "?"
	if frame, ok := L.GetStack(0); ok {
		if _, err := L.GetInfo("n", frame, nil); err == nil && frame.Name != "(anonymous)" && frame.Name != "" {
			name = frame.Name[strings.LastIndexByte(frame.Name, '.')+1:]
		}
	}
	raiseError(L, "bad argument #%d to '%s' (%s)", n, name, why)
}

func wrongType(L *lua.LState, n int, want string) {
	badArgument(L, n, want+" expected, got "+typeName(L, n))
}

func checkAny(L *lua.LState, n int) lua.LValue {
	if n > L.GetTop() {
		badArgument(L, n, "value expected")
	}
	return L.Get(n)
}

func checkString(L *lua.LState, n int) string {
	s, ok := plainString(L.Get(n))
	if !ok {
		wrongType(L, n, "string")
	}
	return s
}

func checkNumber(L *lua.LState, n int) float64 {
	f, ok := plainNumber(L.Get(n))
	if !ok {
		wrongType(L, n, "number")
	}
	return f
}

// checkInt is an argument as a C int of 32 bits.
func checkInt(L *lua.LState, n int) int { return toInt(checkNumber(L, n)) }

func optInt(L *lua.LState, n, otherwise int) int {
	if n > L.GetTop() || L.Get(n) == lua.LNil {
		return otherwise
	}
	return checkInt(L, n)
}

// checkInteger is an argument as an integer of 64 bits.
func checkInteger(L *lua.LState, n int) int { return int(toInteger(checkNumber(L, n))) }

func optInteger(L *lua.LState, n, otherwise int) int {
	if n > L.GetTop() || L.Get(n) == lua.LNil {
		return otherwise
	}
	return checkInteger(L, n)
}

func checkTable(L *lua.LState, n int) *lua.LTable {
	t, ok := L.Get(n).(*lua.LTable)
	if !ok {
		wrongType(L, n, "table")
	}
	return t
}

func checkFunction(L *lua.LState, n int) *lua.LFunction {
	f, ok := L.Get(n).(*lua.LFunction)
	if !ok {
		wrongType(L, n, "function")
	}
	return f
}
