package script

import (
	"bytes"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// magic are the special characters of patterns.
const magic = "^$*+?.([%-"

func (s *state) stringFind(L *lua.LState) int  { return s.search(L, true) }
func (s *state) stringMatch(L *lua.LState) int { return s.search(L, false) }

func (s *state) search(L *lua.LState, find bool) int {
	src, pat := checkString(L, 1), checkString(L, 2)
	special := cString(pat) // a NUL ends a pattern
	i := max(startIndex(optInteger(L, 3, 1), len(src))-1, 0)
	i = min(i, len(src))
	if find && (lua.LVAsBool(L.Get(4)) || !strings.ContainsAny(special, magic)) {
		s.spend(L, (len(src)-i)/64)
		at := strings.Index(src[i:], pat)
		if at < 0 {
			return push(L, lua.LNil)
		}
		return push(L, lua.LNumber(i+at+1), lua.LNumber(i+at+len(pat)))
	}
	m := matcher{s: s, L: L, src: src, pat: special}
	from, to := m.find(i)
	if from < 0 {
		return push(L, lua.LNil)
	}
	if !find {
		return m.push(from, to, true)
	}
	L.Push(lua.LNumber(from + 1))
	L.Push(lua.LNumber(to))
	return 2 + m.push(from, to, false)
}

func (s *state) stringGmatch(L *lua.LState) int {
	src, pat := checkString(L, 1), cString(checkString(L, 2))
	i := 0
	L.Push(L.NewFunction(func(L *lua.LState) int {
		m := matcher{s: s, L: L, src: src, pat: pat}
		for ; i <= len(src); i++ {
			m.captures = 0
			end := m.match(i, 0)
			if end < 0 {
				continue
			}
			from := i
			i = max(end, from+1) // also after an empty match
			return m.push(from, end, true)
		}
		return 0
	}))
	return 1
}

func (s *state) stringGsub(L *lua.LState) int {
	src, pat := checkString(L, 1), cString(checkString(L, 2))
	replacement := checkString(L, 3) // Lua also takes a function or table
	limit := optInt(L, 4, len(src)+1)
	p := 0
	if strings.HasPrefix(pat, "^") {
		p = 1
	}
	m := matcher{s: s, L: L, src: src, pat: pat}
	var b bytes.Buffer
	i, n := 0, 0
	for n < limit {
		m.captures = 0
		end := m.match(i, p)
		if end >= 0 {
			n++
			m.replace(&b, replacement, i, end)
		}
		switch {
		case end > i:
			i = end
		case i < len(src):
			b.WriteByte(src[i])
			i++
		default:
			i++ // past the end
		}
		if b.Len() > maxString {
			raiseError(L, "string length overflow")
		}
		if i > len(src) || p == 1 {
			break
		}
	}
	if i < len(src) {
		b.WriteString(src[i:])
	}
	s.checkLength(L, b.Len())
	return push(L, lua.LString(b.String()), lua.LNumber(n))
}

// replace writes the replacement of src[from:to].
func (m *matcher) replace(b *bytes.Buffer, text string, from, to int) {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == '%' {
			i++
			switch {
			case i == len(text):
				c = 0
			case text[i] == '0':
				b.WriteString(m.src[from:to])
				continue
			case isDigit(text[i]):
				part, _ := plainString(m.value(int(text[i]-'1'), from, to))
				b.WriteString(part)
				continue
			default:
				c = text[i]
			}
		}
		b.WriteByte(c)
		if b.Len() > maxString {
			raiseError(m.L, "string length overflow")
		}
	}
}
