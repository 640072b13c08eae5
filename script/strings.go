package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (s *state) stringLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"byte": s.stringByte, "char": stringChar, "dump": stringDump, "len": stringLen,
		"lower": s.stringLower, "upper": s.stringUpper, "reverse": s.stringReverse,
		"rep": s.stringRep, "sub": stringSub, "format": s.stringFormat,
		"find": s.stringFind, "match": s.stringMatch, "gsub": s.stringGsub,
		"gmatch": s.stringGmatch, "gfind": s.stringGmatch,
	}
}

// startIndex is the position that i means in a string of n bytes; negative ones count
// from its end.
func startIndex(i, n int) int {
	if i < 0 {
		i += n + 1
	}
	return max(i, 0)
}

func (s *state) stringByte(L *lua.LState) int {
	text := checkString(L, 1)
	from := startIndex(optInteger(L, 2, 1), len(text))
	to := min(startIndex(optInteger(L, 3, from), len(text)), len(text))
	from = max(from, 1)
	if from > to {
		return 0
	}
	if to-from >= maxUnpack {
		raiseError(L, "stack overflow (string slice too long)")
	}
	s.spend(L, to-from)
	for _, c := range []byte(text[from-1 : to]) {
		L.Push(lua.LNumber(c))
	}
	return to - from + 1
}

func stringChar(L *lua.LState) int {
	b := make([]byte, L.GetTop())
	for i := range b {
		c := checkInt(L, i+1)
		if c < 0 || c > 255 {
			badArgument(L, i+1, "invalid value")
		}
		b[i] = byte(c)
	}
	L.Push(lua.LString(b))
	return 1
}

func stringDump(L *lua.LState) int {
	checkFunction(L, 1)
	raiseError(L, "unable to dump given function")
	return 0
}

func stringLen(L *lua.LState) int {
	L.Push(lua.LNumber(len(checkString(L, 1))))
	return 1
}

func (s *state) stringLower(L *lua.LState) int { return s.mapBytes(L, 'A', 'Z') }
func (s *state) stringUpper(L *lua.LState) int { return s.mapBytes(L, 'a', 'z') }

// mapBytes changes the case of ASCII letters only, as in the C locale.
func (s *state) mapBytes(L *lua.LState, from, to byte) int {
	text := checkString(L, 1)
	s.spend(L, len(text)/64)
	b := []byte(text)
	for i, c := range b {
		if from <= c && c <= to {
			b[i] = c ^ 0x20
		}
	}
	L.Push(lua.LString(b))
	return 1
}

func (s *state) stringReverse(L *lua.LState) int {
	text := checkString(L, 1)
	s.spend(L, len(text)/64)
	b := make([]byte, len(text))
	for i := range b {
		b[i] = text[len(text)-1-i]
	}
	L.Push(lua.LString(b))
	return 1
}

func (s *state) stringRep(L *lua.LState) int {
	text, n := checkString(L, 1), max(checkInt(L, 2), 0)
	if len(text) > 0 {
		s.checkLength(L, min(n, maxString+1)*len(text))
		text = strings.Repeat(text, n)
	}
	L.Push(lua.LString(text))
	return 1
}

func stringSub(L *lua.LState) int {
	text := checkString(L, 1)
	from := max(startIndex(checkInteger(L, 2), len(text)), 1)
	to := min(startIndex(optInteger(L, 3, -1), len(text)), len(text))
	if from > to {
		L.Push(lua.LString(""))
		return 1
	}
	L.Push(lua.LString(text[from-1 : to]))
	return 1
}
