package script

import (
	lua "github.com/yuin/gopher-lua"
)

func (s *state) tableLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"concat": s.tableConcat, "insert": s.tableInsert, "remove": s.tableRemove,
		"sort": s.tableSort, "getn": s.tableGetN, "maxn": s.tableMaxN,
		"foreach": s.tableForEach, "foreachi": s.tableForEachI,
	}
}

func (s *state) tableConcat(L *lua.LState) int {
	t := s.content(checkTable(L, 1))
	separator := ""
	if L.GetTop() > 1 && L.Get(2) != lua.LNil {
		separator = checkString(L, 2)
	}
	from, to := optInt(L, 3, 1), optInt(L, 4, length(t))
	var b []byte
	for i := from; i <= to; i++ {
		v := t.RawGet(lua.LNumber(i))
		if _, ok := plainString(v); !ok {
			raiseError(L, "invalid value (%s) at index %d in table for 'concat'", v.Type().String(), i)
		}
		b = appendPlain(b, v)
		if i < to {
			b = append(b, separator...)
		}
		if len(b) > maxString {
			raiseError(L, "string length overflow")
		}
		s.spend(L, 1)
	}
	s.checkLength(L, len(b))
	L.Push(lua.LString(b))
	return 1
}

// maxShift is how far below the end of a table an element can be inserted.
const maxShift = 20_000_000

func (s *state) tableInsert(L *lua.LState) int {
	t := s.writable(L, 1)
	end := length(t) + 1
	switch L.GetTop() {
	case 2:
		t.RawSetInt(end, L.Get(2))
	case 3:
		at := checkInt(L, 2)
		if at < end-maxShift {
			raiseError(L, "bad argument #2 to 'insert' (position out of bounds)") // it would never end
		}
		s.spend(L, max(0, end-at)/4)
		for i := max(end, at); i > at; i-- {
			t.RawSetInt(i, t.RawGet(lua.LNumber(i-1)))
		}
		t.RawSetInt(at, L.Get(3))
	default:
		raiseError(L, "wrong number of arguments to 'insert'")
	}
	return 0
}

func (s *state) tableRemove(L *lua.LState) int {
	t := s.writable(L, 1)
	end := length(t)
	at := optInt(L, 2, end)
	if at < 1 || at > end {
		return 0
	}
	s.spend(L, (end-at)/4)
	L.Push(t.RawGet(lua.LNumber(at)))
	for i := at; i < end; i++ {
		t.RawSetInt(i, t.RawGet(lua.LNumber(i+1)))
	}
	t.RawSetInt(end, lua.LNil)
	return 1
}

func (s *state) tableGetN(L *lua.LState) int {
	L.Push(lua.LNumber(length(s.content(checkTable(L, 1)))))
	return 1
}

func (s *state) tableMaxN(L *lua.LState) int {
	t := s.content(checkTable(L, 1))
	highest := lua.LNumber(0)
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		if n, ok := k.(lua.LNumber); ok && v != lua.LNil {
			highest = max(highest, n)
		}
		s.spend(L, 1)
	}
	L.Push(highest)
	return 1
}

func (s *state) tableForEach(L *lua.LState) int {
	t, f := s.content(checkTable(L, 1)), checkFunction(L, 2)
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		if s.visit(L, f, k, v) {
			return 1
		}
	}
	return 0
}

func (s *state) tableForEachI(L *lua.LState) int {
	t, f := s.content(checkTable(L, 1)), checkFunction(L, 2)
	for i, n := 1, length(t); i <= n; i++ {
		if s.visit(L, f, lua.LNumber(i), t.RawGet(lua.LNumber(i))) {
			return 1
		}
	}
	return 0
}

// visit calls f for an element, and leaves its result on the stack if that ends the loop.
func (s *state) visit(L *lua.LState, f *lua.LFunction, k, v lua.LValue) bool {
	s.spend(L, 1)
	L.Push(f)
	L.Push(k)
	L.Push(v)
	L.Call(2, 1)
	if L.Get(-1) != lua.LNil {
		return true
	}
	L.Pop(1)
	return false
}
