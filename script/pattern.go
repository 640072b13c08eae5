package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// This file matches patterns as Lua 5.1 does (lstrlib.c), without %b, %f and back references. The
// matcher of gopher-lua recurses for each byte and cannot be interrupted. The matcher here recurses
// at most once for each item of the pattern, and counts its steps.

const (
	maxCaptures     = 32
	maxPatternDepth = 200
)

const (
	captureOpen     = -1
	capturePosition = -2
)

type matcher struct {
	s        *state
	L        *lua.LState
	src, pat string
	captures int
	capture  [maxCaptures]struct{ start, len int }
	depth    int
	steps    int
}

// match matches the pattern from p at position i of the subject. It returns the end of the match,
// or -1.
func (m *matcher) match(i, p int) int {
	m.depth++
	defer func() { m.depth-- }()
	if m.depth > maxPatternDepth {
		raiseError(m.L, "pattern too complex")
	}
	for {
		m.step()
		if p == len(m.pat) {
			return i
		}
		switch m.pat[p] {
		case '(':
			if p+1 < len(m.pat) && m.pat[p+1] == ')' {
				return m.startCapture(i, p+2, capturePosition)
			}
			return m.startCapture(i, p+1, captureOpen)
		case ')':
			return m.endCapture(i, p+1)
		case '%':
			if p+1 < len(m.pat) && strings.IndexByte("bf0123456789", m.pat[p+1]) >= 0 {
				raiseError(m.L, "%%%c in a pattern is not supported", m.pat[p+1])
			}
		case '$':
			if p+1 == len(m.pat) {
				if i == len(m.src) {
					return i
				}
				return -1
			}
		}
		end := m.classEnd(p)
		repeat := byte(0)
		if end < len(m.pat) {
			repeat = m.pat[end]
		}
		switch repeat {
		case '?':
			if m.single(i, p, end) {
				if found := m.match(i+1, end+1); found >= 0 {
					return found
				}
			}
			p = end + 1
		case '*':
			return m.longest(i, p, end)
		case '+':
			if !m.single(i, p, end) {
				return -1
			}
			return m.longest(i+1, p, end)
		case '-':
			return m.shortest(i, p, end)
		default:
			if !m.single(i, p, end) {
				return -1
			}
			i, p = i+1, end
		}
	}
}

func (m *matcher) step() { m.work(1) }

// work counts steps of the matcher, and charges them now and then.
func (m *matcher) work(n int) {
	m.steps += n
	if m.steps >= 64 {
		m.s.spend(m.L, m.steps/4)
		m.steps = 0
	}
}

func (m *matcher) longest(i, p, end int) int {
	n := 0
	for m.single(i+n, p, end) {
		m.step()
		n++
	}
	for ; n >= 0; n-- {
		if found := m.match(i+n, end+1); found >= 0 {
			return found
		}
	}
	return -1
}

func (m *matcher) shortest(i, p, end int) int {
	for {
		if found := m.match(i, end+1); found >= 0 {
			return found
		}
		if !m.single(i, p, end) {
			return -1
		}
		i++
	}
}

func (m *matcher) startCapture(i, p, kind int) int {
	if m.captures >= maxCaptures {
		raiseError(m.L, "too many captures")
	}
	c := &m.capture[m.captures]
	c.start, c.len = i, kind
	m.captures++
	found := m.match(i, p)
	if found < 0 {
		m.captures--
	}
	return found
}

func (m *matcher) endCapture(i, p int) int {
	open := m.captures - 1
	for ; open >= 0 && m.capture[open].len != captureOpen; open-- {
	}
	if open < 0 {
		raiseError(m.L, "invalid pattern capture")
	}
	c := &m.capture[open]
	c.len = i - c.start
	found := m.match(i, p)
	if found < 0 {
		c.len = captureOpen
	}
	return found
}

// classEnd returns the end of the character class at p.
func (m *matcher) classEnd(p int) int {
	c := m.pat[p]
	p++
	switch c {
	case '%':
		if p == len(m.pat) {
			raiseError(m.L, "%s", "malformed pattern (ends with '%')")
		}
		return p + 1
	case '[':
		start := p
		if p < len(m.pat) && m.pat[p] == '^' {
			p++
		}
		for first := true; first || p >= len(m.pat) || m.pat[p] != ']'; first = false {
			if p >= len(m.pat) {
				raiseError(m.L, "malformed pattern (missing ']')")
			}
			p++
			if m.pat[p-1] == '%' && p < len(m.pat) {
				p++
			}
		}
		m.work((p - start) / 16)
		return p + 1
	}
	return p
}

func (m *matcher) single(i, p, end int) bool {
	if i >= len(m.src) {
		return false
	}
	c := m.src[i]
	switch m.pat[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.pat[p+1])
	case '[':
		return m.inSet(c, p, end-1)
	}
	return m.pat[p] == c
}

// inSet reports whether c is in a set of the pattern. p is the position of the set's '[', and end
// that of its ']'.
func (m *matcher) inSet(c byte, p, end int) bool {
	m.work((end - p) / 16)
	in := true
	p++
	if m.pat[p] == '^' {
		in = false
		p++
	}
	for ; p < end; p++ {
		switch {
		case m.pat[p] == '%' && p+1 < end:
			p++
			if inClass(c, m.pat[p]) {
				return in
			}
		case p+2 < end && m.pat[p+1] == '-':
			if m.pat[p] <= c && c <= m.pat[p+2] {
				return in
			}
			p += 2
		case m.pat[p] == c:
			return in
		}
	}
	return !in
}

func inClass(c, class byte) bool {
	in := false
	switch class | 0x20 {
	case 'a':
		in = isLetter(c)
	case 'c':
		in = c < ' ' || c == 127
	case 'd':
		in = isDigit(c)
	case 'l':
		in = 'a' <= c && c <= 'z'
	case 'p':
		in = '!' <= c && c <= '~' && !isLetter(c) && !isDigit(c)
	case 's':
		in = c == ' ' || '\t' <= c && c <= '\r'
	case 'u':
		in = 'A' <= c && c <= 'Z'
	case 'w':
		in = isLetter(c) || isDigit(c)
	case 'x':
		in = isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f'
	case 'z':
		in = c == 0
	default:
		return class == c
	}
	return in == (class >= 'a')
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// value returns capture n after a match of src[from:to]. In a pattern without captures, the whole
// match is capture 0.
func (m *matcher) value(n, from, to int) lua.LValue {
	if n >= m.captures {
		if n > 0 {
			raiseError(m.L, "invalid capture index")
		}
		return lua.LString(m.src[from:to])
	}
	c := m.capture[n]
	switch c.len {
	case captureOpen:
		raiseError(m.L, "unfinished capture")
	case capturePosition:
		return lua.LNumber(c.start + 1)
	}
	return lua.LString(m.src[c.start : c.start+c.len])
}

// push pushes the captures. If there are none and whole is true, it pushes the whole match.
func (m *matcher) push(from, to int, whole bool) int {
	n := m.captures
	if n == 0 && whole {
		n = 1
	}
	for i := range n {
		m.L.Push(m.value(i, from, to))
	}
	return n
}

// find finds the first match from position i on.
func (m *matcher) find(i int) (from, to int) {
	p := 0
	if strings.HasPrefix(m.pat, "^") {
		p = 1
	}
	for {
		m.captures = 0
		if end := m.match(i, p); end >= 0 {
			return i, end
		}
		i++
		if p == 1 || i > len(m.src) {
			return -1, -1
		}
	}
}
