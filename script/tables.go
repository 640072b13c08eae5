package script

import (
	lua "github.com/yuin/gopher-lua"
)

// tableLibrary returns the table library. None of its functions is gopher-lua's, whose functions
// use only the array part of a table, and whose errors are not those of Redis. The comments below
// say how else gopher-lua's function differs.
func (s *state) tableLibrary() map[string]lua.LGFunction {
	return map[string]lua.LGFunction{
		"concat": s.tableConcat, // gopher-lua's makes strings of any length
		"insert": s.tableInsert, // gopher-lua's changes read-only tables
		"remove": s.tableRemove, // gopher-lua's returns nil where Lua returns nothing
		"sort":   refused("table.sort"),
		"getn":   s.tableGetN, // gopher-lua's misses elements beyond the array part
	}
}

func (s *state) tableConcat(L *lua.LState) int {
	t := s.content(checkTable(L, 1))
	separator := optional(L, 2, "", checkString)
	from, to := optional(L, 3, 1, checkInt), optional(L, 4, length(t), checkInt)
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
	return push(L, lua.LString(b))
}

// maxShift is the maximum number of elements that table.insert moves, so that it ends soon.
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
			raiseError(L, "bad argument #2 to 'insert' (position out of bounds)")
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
	at := optional(L, 2, end, checkInt)
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
	return push(L, lua.LNumber(length(s.content(checkTable(L, 1)))))
}
