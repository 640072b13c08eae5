package script

import (
	"fmt"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// This file has the checks of arguments of library functions. They raise the errors of Lua 5.1.

func typeName(L *lua.LState, n int) string {
	if n > L.GetTop() {
		return "no value"
	}
	return L.Get(n).Type().String()
}

// position returns the source position at a level of the stack as the prefix of an error. It is ""
// for a function in Go.
func position(L *lua.LState, level int) string {
	if where := L.Where(level); where != "" && !strings.HasPrefix(where, "[G]") {
		return where + " "
	}
	return ""
}

// raise raises an error without a position.
func raise(L *lua.LState, text string) { L.Error(lua.LString(text), 0) }

// raiseError raises an error of a library function, with the position of its caller.
func raiseError(L *lua.LState, format string, args ...any) {
	raise(L, position(L, 1)+fmt.Sprintf(format, args...))
}

// badArgument raises Lua's error for argument n of a library function.
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

// checkInt returns an argument as a C int of 32 bits.
func checkInt(L *lua.LState, n int) int { return toInt(checkNumber(L, n)) }

// checkInteger returns an argument as an integer of 64 bits.
func checkInteger(L *lua.LState, n int) int { return int(toInteger(checkNumber(L, n))) }

// isNone reports whether an optional argument is missing or nil.
func isNone(L *lua.LState, n int) bool { return n > L.GetTop() || L.Get(n) == lua.LNil }

// optional returns an optional argument as check does.
func optional[T any](L *lua.LState, n int, otherwise T, check func(*lua.LState, int) T) T {
	if isNone(L, n) {
		return otherwise
	}
	return check(L, n)
}

func checkTable(L *lua.LState, n int) *lua.LTable {
	t, ok := L.Get(n).(*lua.LTable)
	if !ok {
		wrongType(L, n, "table")
	}
	return t
}

// call1 calls a function and returns its first result.
func call1(L *lua.LState, f lua.LValue, args ...lua.LValue) lua.LValue {
	L.Push(f)
	for _, v := range args {
		L.Push(v)
	}
	L.Call(len(args), 1)
	result := L.Get(-1)
	L.Pop(1)
	return result
}

// push pushes the results of a library function and returns their number.
func push(L *lua.LState, results ...lua.LValue) int {
	for _, v := range results {
		L.Push(v)
	}
	return len(results)
}
