package script

import (
	"sort"

	lua "github.com/yuin/gopher-lua"
)

// maxExact is 2^53. A float64 cannot represent all integers above it.
const maxExact = 1 << 53

// length returns #t. gopher-lua's own length misses the elements beyond the array part.
func length(t *lua.LTable) int {
	n := t.Len()
	if n < maxArrayIndex-1 {
		return n
	}
	there := func(i int) bool { return t.RawGet(lua.LNumber(i)) != lua.LNil }
	far := n + 1
	for far < maxExact && there(far) {
		far *= 2
	}
	return n + sort.Search(far-n, func(i int) bool { return !there(n + i + 1) })
}

// length is the operator #.
func (s *state) length(L *lua.LState) int {
	switch v := L.Get(1).(type) {
	case lua.LString:
		return push(L, lua.LNumber(len(v)))
	case *lua.LTable:
		return push(L, lua.LNumber(length(s.content(v))))
	default:
		raiseError(L, "attempt to get length of a %s value", v.Type().String())
		return 0
	}
}

// concat is the operator .. on all arguments but the last. See call in rewrite.go.
func (s *state) concat(L *lua.LState) int {
	last := L.GetTop() - 1
	right := L.Get(last)
	for last > 1 {
		total, first := 0, last+1
		text, isText := plainString(right)
		if isText {
			total, first = len(text), last
			for first > 1 {
				left, ok := plainString(L.Get(first - 1))
				if !ok {
					break
				}
				total += len(left)
				first--
			}
		}
		if first >= last {
			left := L.Get(last - 1)
			_, ok := plainString(left)
			right = byMetamethod(L, "__concat", left, right, ok, "concatenate")
			last--
			continue
		}
		s.checkLength(L, total)
		buf := make([]byte, 0, total)
		for i := first; i < last; i++ {
			buf = appendPlain(buf, L.Get(i))
		}
		right = lua.LString(appendPlain(buf, right))
		last = first
	}
	return push(L, right)
}

func appendPlain(b []byte, v lua.LValue) []byte {
	if n, ok := v.(lua.LNumber); ok {
		return appendNumber(b, float64(n))
	}
	return append(b, string(v.(lua.LString))...)
}

// byMetamethod returns the result of an operator's metamethod. If there is none, it raises an error
// that names the type of left, or that of right if leftOK is true.
func byMetamethod(L *lua.LState, event string, left, right lua.LValue, leftOK bool, attempt string) lua.LValue {
	for _, v := range []lua.LValue{left, right} {
		if t, ok := v.(*lua.LTable); ok {
			if method := L.GetMetaField(t, event); method != lua.LNil {
				return call1(L, method, left, right)
			}
		}
	}
	culprit := left
	if leftOK {
		culprit = right
	}
	raiseError(L, "attempt to %s a %s value", attempt, culprit.Type().String())
	return nil
}
