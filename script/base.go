package script

import (
	"errors"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// openBase defines Lua's basic functions. As in Redis, none of them reads files, prints or changes
// environments.
//
// None of them is gopher-lua's, whose error texts pcall would show to scripts. The comments below
// say how else gopher-lua's function differs.
func (s *state) openBase(env *lua.LTable) {
	for name, f := range map[string]lua.LGFunction{
		"assert":       baseAssert,     // gopher-lua's refuses a number as the message
		"error":        baseError,      // gopher-lua's adds no position to a number
		"pcall":        s.pcall,        // gopher-lua's hides panics of gopher-lua
		"getmetatable": s.getMetatable, // gopher-lua's shows the proxies
		"setmetatable": s.setMetatable, // gopher-lua's changes read-only tables
		"rawequal":     rawEqual,       // differs: words of the error
		"rawget":       s.rawGet,       // gopher-lua's finds nothing in a read-only table
		"rawset":       s.rawSet,       // gopher-lua's changes read-only tables
		"pairs":        s.pairs,        // gopher-lua's finds nothing in a read-only table
		"ipairs":       s.baseIpairs,   // gopher-lua's misses elements beyond the array part
		"select":       baseSelect,     // gopher-lua's takes no numeric string
		"unpack":       s.unpack,       // gopher-lua's misses elements beyond the array part
		"tonumber":     toNumber,       // gopher-lua's reads numbers as Go does
		"tostring":     toString,       // gopher-lua's writes numbers as Go does
		"type":         baseType,       // differs: words of the error
	} {
		s.globals.RawSetString(name, s.lua.NewFunction(f))
	}
	s.globals.RawSetString("next", s.next) // gopher-lua's finds nothing in a read-only table
	s.globals.RawSetString("_G", env)
	s.globals.RawSetString("_VERSION", lua.LString("Lua 5.1"))
}

func baseAssert(L *lua.LState) int {
	if lua.LVAsBool(checkAny(L, 1)) {
		return L.GetTop()
	}
	raise(L, position(L, 1)+cString(optional(L, 2, "assertion failed!", checkString)))
	return 0
}

func baseError(L *lua.LState) int {
	v := L.Get(1)
	level := optional(L, 2, 1, checkInt)
	if text, ok := plainString(v); ok {
		if level > 0 {
			text = position(L, min(level, maxCalls)) + text
		}
		v = lua.LString(text)
	}
	L.Error(v, 0)
	return 0
}

// pcall returns the text of an error that redis.call has raised, and not its table.
func (s *state) pcall(L *lua.LState) int {
	checkAny(L, 1)
	if err := L.PCall(L.GetTop()-1, lua.MultRet, nil); err != nil {
		v := s.raised(err)
		if t, ok := v.(*lua.LTable); ok {
			if text, ok := t.RawGetString("err").(lua.LString); ok {
				v = text
			}
		}
		L.SetTop(0)
		return push(L, lua.LFalse, v)
	}
	L.Insert(lua.LTrue, 1)
	return L.GetTop()
}

// raised returns the value of a caught error. If gopher-lua has panicked, raised marks the state as
// broken.
func (s *state) raised(err error) lua.LValue {
	var e *lua.ApiError
	if !errors.As(err, &e) || e.Type == lua.ApiErrorPanic {
		s.broken = true
		return lua.LString(err.Error())
	}
	return e.Object
}

func (s *state) getMetatable(L *lua.LState) int {
	var meta lua.LValue = lua.LNil
	switch v := checkAny(L, 1).(type) {
	case *lua.LTable:
		if _, ok := s.contents[v]; !ok {
			meta = v.Metatable
		}
	case lua.LString:
		meta = s.stringMeta
	}
	if t, ok := meta.(*lua.LTable); ok {
		if shown := t.RawGetString("__metatable"); shown != lua.LNil {
			meta = shown
		}
	}
	return push(L, meta)
}

func (s *state) setMetatable(L *lua.LState) int {
	t := s.writable(L, 1)
	meta := L.Get(2)
	if _, ok := meta.(*lua.LTable); L.GetTop() < 2 || !ok && meta != lua.LNil {
		badArgument(L, 2, "nil or table expected")
	}
	if old, ok := t.Metatable.(*lua.LTable); ok && old.RawGetString("__metatable") != lua.LNil {
		raiseError(L, "cannot change a protected metatable")
	}
	t.Metatable = meta
	L.SetTop(1)
	return 1
}

func rawEqual(L *lua.LState) int {
	return push(L, lua.LBool(L.RawEqual(checkAny(L, 1), checkAny(L, 2))))
}

func (s *state) rawGet(L *lua.LState) int {
	return push(L, s.content(checkTable(L, 1)).RawGet(checkAny(L, 2)))
}

func (s *state) rawSet(L *lua.LState) int {
	L.RawSet(s.writable(L, 1), checkAny(L, 2), checkAny(L, 3))
	L.SetTop(1)
	return 1
}

func (s *state) baseNext(L *lua.LState) int {
	s.spend(L, 1)
	k, v := s.content(checkTable(L, 1)).Next(L.Get(2))
	if k == lua.LNil {
		return push(L, k)
	}
	return push(L, k, v)
}

func (s *state) pairs(L *lua.LState) int { return push(L, s.next, checkTable(L, 1), lua.LNil) }

func (s *state) baseIpairs(L *lua.LState) int {
	return push(L, s.ipairs, checkTable(L, 1), lua.LNumber(0))
}

func ipairsNext(L *lua.LState) int {
	i := lua.LNumber(checkInt(L, 2) + 1)
	v := checkTable(L, 1).RawGet(i)
	if v == lua.LNil {
		return 0
	}
	return push(L, i, v)
}

func baseSelect(L *lua.LState) int {
	n := L.GetTop()
	if text, ok := L.Get(1).(lua.LString); ok && strings.HasPrefix(string(text), "#") {
		return push(L, lua.LNumber(n-1))
	}
	i := checkInt(L, 1)
	if i < 0 {
		i += n
	}
	if i < 1 {
		badArgument(L, 1, "index out of range")
	}
	return n - min(i, n)
}

// maxUnpack is the maximum number of values that unpack returns.
const maxUnpack = 8000

func (s *state) unpack(L *lua.LState) int {
	t := s.content(checkTable(L, 1))
	from := optional(L, 2, 1, checkInt)
	to := optional(L, 3, -1, checkInt)
	if isNone(L, 3) {
		to = length(t)
	}
	if from > to {
		return 0
	}
	if to-from >= maxUnpack {
		raiseError(L, "too many results to unpack")
	}
	s.spend(L, to-from)
	for i := from; i <= to; i++ {
		L.Push(t.RawGet(lua.LNumber(i)))
	}
	return to - from + 1
}

func toNumber(L *lua.LState) int {
	base := optional(L, 2, 10, checkInt)
	v := checkAny(L, 1)
	if base == 10 {
		if f, ok := plainNumber(v); ok {
			return push(L, lua.LNumber(f))
		}
		return push(L, lua.LNil)
	}
	if base < 2 || base > 36 {
		badArgument(L, 2, "base out of range")
	}
	if n, ok := parseUnsigned(checkString(L, 1), base); ok {
		return push(L, lua.LNumber(n))
	}
	return push(L, lua.LNil)
}

func toString(L *lua.LState) int {
	v := checkAny(L, 1)
	if text, ok := plainString(v); ok {
		return push(L, lua.LString(text))
	}
	if t, ok := v.(*lua.LTable); ok {
		if f := L.GetMetaField(t, "__tostring"); f != lua.LNil {
			return push(L, call1(L, f, v))
		}
	}
	return push(L, lua.LString(v.String()))
}

func baseType(L *lua.LState) int { return push(L, lua.LString(checkAny(L, 1).Type().String())) }
