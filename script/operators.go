package script

import (
	"sort"

	lua "github.com/yuin/gopher-lua"
)

// maxExact is where numbers begin that are not all integers.
const maxExact = 1 << 53

// length is #t. The machine's own does not know of the elements of a long array that are not
// in its array.
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
		L.Push(lua.LNumber(len(v)))
	case *lua.LTable:
		L.Push(lua.LNumber(length(s.content(v))))
	default:
		raiseError(L, "attempt to get length of a %s value", v.Type().String())
	}
	return 1
}

// concat is the operator .. of all arguments but the last, which marks the end.
func (s *state) concat(L *lua.LState) int {
	last := L.GetTop() - 1
	right := L.Get(last)
	for last > 1 {
		total, first := 0, last+1
		if text, ok := plainString(right); ok {
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
			right = s.concatBy(L, L.Get(last-1), right)
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
	L.Push(right)
	return 1
}

func appendPlain(b []byte, v lua.LValue) []byte {
	if n, ok := v.(lua.LNumber); ok {
		return appendNumber(b, float64(n))
	}
	return append(b, string(v.(lua.LString))...)
}

// concatBy is .. of values that are not both strings or numbers.
func (s *state) concatBy(L *lua.LState, left, right lua.LValue) lua.LValue {
	for _, v := range []lua.LValue{left, right} {
		t, ok := v.(*lua.LTable)
		if !ok {
			continue
		}
		if f := L.GetMetaField(t, "__concat"); f != lua.LNil {
			L.Push(f)
			L.Push(left)
			L.Push(right)
			L.Call(2, 1)
			result := L.Get(-1)
			L.Pop(1)
			return result
		}
	}
	culprit := left
	if _, ok := plainString(left); ok {
		culprit = right
	}
	raiseError(L, "attempt to concatenate a %s value", culprit.Type().String())
	return nil
}
