package script

import (
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// Lua's conversions between strings and numbers, and the arguments of library functions with
// the errors of Lua 5.1.

// appendNumber appends a number as C's %.14g, which is how Lua prints it.
func appendNumber(b []byte, f float64) []byte { return appendG(b, f, 14, 1e14) }

// appendG appends f with some significant digits; below limit, whole numbers have no
// more than those.
func appendG(b []byte, f float64, digits int, limit float64) []byte {
	switch {
	case f == math.Trunc(f) && math.Abs(f) < limit && (f != 0 || !math.Signbit(f)):
		return strconv.AppendInt(b, int64(f), 10)
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case math.IsNaN(f) && math.Signbit(f):
		return append(b, "-nan"...)
	case math.IsNaN(f):
		return append(b, "nan"...)
	}
	return strconv.AppendFloat(b, f, 'g', digits, 64)
}

// plainString is the text of a string or number.
func plainString(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return string(appendNumber(make([]byte, 0, 24), float64(v))), true
	}
	return "", false
}

// plainNumber is the value of a number, or of a string that spells one.
func plainNumber(v lua.LValue) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return parseNumber(string(v))
	}
	return 0, false
}

// parseNumber reads a number as C's strtod does, and hexadecimal whole numbers.
func parseNumber(s string) (float64, bool) {
	s = strings.Trim(s, " \t\n\v\f\r")
	if s == "" || strings.ContainsRune(s, '_') {
		return 0, false
	}
	digits, negative := s, false
	if s[0] == '-' || s[0] == '+' {
		digits, negative = s[1:], s[0] == '-'
	}
	if len(digits) > 2 && digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') {
		if n, err := strconv.ParseUint(digits[2:], 16, 64); err == nil {
			if negative {
				return -float64(n), true
			}
			return float64(n), true
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

func typeName(L *lua.LState, n int) string {
	if n > L.GetTop() {
		return "no value"
	}
	return L.Get(n).Type().String()
}

// badArgument raises what Lua says of an argument that a function cannot take.
func badArgument(L *lua.LState, n int, why string) {
	name := "?"
	if frame, ok := L.GetStack(0); ok {
		if _, err := L.GetInfo("n", frame, nil); err == nil && frame.Name != "" {
			name = frame.Name[strings.LastIndexByte(frame.Name, '.')+1:]
		}
	}
	L.RaiseError("bad argument #%d to '%s' (%s)", n, name, why)
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

func checkInt(L *lua.LState, n int) int { return toInt(checkNumber(L, n)) }

func optInt(L *lua.LState, n, otherwise int) int {
	if n > L.GetTop() || L.Get(n) == lua.LNil {
		return otherwise
	}
	return checkInt(L, n)
}

// toInt cuts a number off to a whole one; what is far from any length or index becomes 2^53.
func toInt(f float64) int {
	const far = 1 << 53
	switch {
	case math.IsNaN(f):
		return 0
	case f > far:
		return far
	case f < -far:
		return -far
	}
	return int(f)
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
