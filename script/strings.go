package script

import (
	"slices"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (s *state) stringLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"byte": s.stringByte, "char": stringChar, "len": stringLen,
		"lower": s.mapBytes(swapCase('A', 'Z')), "upper": s.mapBytes(swapCase('a', 'z')), "reverse": s.mapBytes(slices.Reverse[[]byte]),
		"rep": s.stringRep, "sub": stringSub, "format": s.stringFormat,
		"find": s.stringFind, "match": refused("string.match"), "gmatch": refused("string.gmatch"), "gsub": refused("string.gsub"),
	}
}

// refused returns a function that only raises an error.
func refused(name string) lua.LGFunction {
	return func(L *lua.LState) int { raiseError(L, "%s is not supported: this is a lock server", name); return 0 }
}

// startIndex returns the position i in a string of n bytes. A negative i counts from the end.
func startIndex(i, n int) int {
	if i < 0 {
		i += n + 1
	}
	return max(i, 0)
}

func (s *state) stringByte(L *lua.LState) int {
	text := checkString(L, 1)
	from := startIndex(optional(L, 2, 1, checkInteger), len(text))
	to := min(startIndex(optional(L, 3, from, checkInteger), len(text)), len(text))
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
	return push(L, lua.LString(b))
}

func stringLen(L *lua.LState) int {
	return push(L, lua.LNumber(len(checkString(L, 1))))
}

// mapBytes returns a string function that changes the bytes of its argument.
func (s *state) mapBytes(change func(b []byte)) lua.LGFunction {
	return func(L *lua.LState) int {
		b := []byte(checkString(L, 1))
		s.spend(L, len(b)/64)
		change(b)
		return push(L, lua.LString(b))
	}
}

// swapCase returns a function that changes the case of ASCII letters only, as in the C locale.
func swapCase(from, to byte) func(b []byte) {
	return func(b []byte) {
		for i, c := range b {
			if from <= c && c <= to {
				b[i] = c ^ 0x20
			}
		}
	}
}

func (s *state) stringRep(L *lua.LState) int {
	text, n := checkString(L, 1), max(checkInt(L, 2), 0)
	if len(text) > 0 {
		s.checkLength(L, min(n, maxString+1)*len(text))
		text = strings.Repeat(text, n)
	}
	return push(L, lua.LString(text))
}

func stringSub(L *lua.LState) int {
	text := checkString(L, 1)
	from := max(startIndex(checkInteger(L, 2), len(text)), 1)
	to := min(startIndex(optional(L, 3, -1, checkInteger), len(text)), len(text))
	if from > to {
		return push(L, lua.LString(""))
	}
	return push(L, lua.LString(text[from-1:to]))
}

// stringFind is string.find of a plain text. Lock scripts use no patterns.
func (s *state) stringFind(L *lua.LState) int {
	text, part := checkString(L, 1), checkString(L, 2)
	from := min(max(startIndex(optional(L, 3, 1, checkInteger), len(text))-1, 0), len(text))
	if !lua.LVAsBool(L.Get(4)) && strings.ContainsAny(cString(part), "^$*+?.([%-") {
		raiseError(L, "patterns are not supported: string.find needs true as its fourth argument")
	}
	s.spend(L, (len(text)-from)/64)
	at := strings.Index(text[from:], part)
	if at < 0 {
		return push(L, lua.LNil)
	}
	return push(L, lua.LNumber(from+at+1), lua.LNumber(from+at+len(part)))
}
