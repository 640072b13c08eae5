package script

import (
	"errors"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// openBase defines Lua's basic functions. What reads files, prints or changes environments is
// not there, as in Redis.
func (s *state) openBase(env *lua.LTable) {
	for name, f := range map[string]lua.LGFunction{
		"assert": baseAssert, "error": baseError, "pcall": s.pcall, "xpcall": s.xpcall,
		"getmetatable": s.getMetatable, "setmetatable": s.setMetatable,
		"rawequal": rawEqual, "rawget": s.rawGet, "rawset": s.rawSet,
		"pairs": s.pairs, "ipairs": s.baseIpairs,
		"load": s.load, "loadstring": s.loadString,
		"select": baseSelect, "unpack": s.unpack,
		"tonumber": toNumber, "tostring": toString, "type": baseType,
		"collectgarbage": s.collectGarbage, "gcinfo": s.collectGarbage,
	} {
		s.globals.RawSetString(name, s.lua.NewFunction(f))
	}
	s.globals.RawSetString("next", s.next)
	s.globals.RawSetString("_G", env)
	s.globals.RawSetString("_VERSION", lua.LString("Lua 5.1"))
}

func baseAssert(L *lua.LState) int {
	if lua.LVAsBool(checkAny(L, 1)) {
		return L.GetTop()
	}
	text := "assertion failed!"
	if L.GetTop() > 1 && L.Get(2) != lua.LNil {
		text = cString(checkString(L, 2))
	}
	raiseError(L, "%s", text)
	return 0
}

func baseError(L *lua.LState) int {
	v := L.Get(1)
	level := optInt(L, 2, 1)
	if text, ok := plainString(v); ok {
		if level > 0 {
			text = position(L, min(level, maxCalls)) + text
		}
		v = lua.LString(text)
	}
	L.Error(v, 0)
	return 0
}

// pcall gives the text of an error that redis.call has raised, not its table.
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
		L.Push(lua.LFalse)
		L.Push(v)
		return 2
	}
	L.Insert(lua.LTrue, 1)
	return L.GetTop()
}

func (s *state) xpcall(L *lua.LState) int {
	handler := checkAny(L, 2)
	L.SetTop(1)
	if err := L.PCall(0, lua.MultRet, nil); err != nil {
		v := s.raised(err)
		L.SetTop(0)
		L.Push(lua.LFalse)
		L.Push(handler)
		L.Push(v)
		if err := L.PCall(1, 1, nil); err != nil { // the handler itself has failed
			L.Push(s.raised(err))
		}
		return 2
	}
	L.Insert(lua.LTrue, 1)
	return L.GetTop()
}

// raised is the value of an error that was caught. One that the machine itself has not
// meant to raise leaves it in doubt.
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
		if _, ok := s.behind[v]; !ok {
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
	L.Push(meta)
	return 1
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
	L.Push(lua.LBool(L.RawEqual(checkAny(L, 1), checkAny(L, 2))))
	return 1
}

func (s *state) rawGet(L *lua.LState) int {
	L.Push(s.content(checkTable(L, 1)).RawGet(checkAny(L, 2)))
	return 1
}

func (s *state) rawSet(L *lua.LState) int {
	L.RawSet(s.writable(L, 1), checkAny(L, 2), checkAny(L, 3))
	L.SetTop(1)
	return 1
}

func (s *state) baseNext(L *lua.LState) int {
	s.spend(L, 1)
	k, v := s.content(checkTable(L, 1)).Next(L.Get(2))
	L.Push(k)
	if k == lua.LNil {
		return 1
	}
	L.Push(v)
	return 2
}

func (s *state) pairs(L *lua.LState) int {
	t := checkTable(L, 1)
	L.Push(s.next)
	L.Push(t)
	L.Push(lua.LNil)
	return 3
}

func (s *state) baseIpairs(L *lua.LState) int {
	t := checkTable(L, 1)
	L.Push(s.ipairs)
	L.Push(t)
	L.Push(lua.LNumber(0))
	return 3
}

func ipairsNext(L *lua.LState) int {
	i := checkInt(L, 2) + 1
	v := checkTable(L, 1).RawGet(lua.LNumber(i))
	if v == lua.LNil {
		return 0
	}
	L.Push(lua.LNumber(i))
	L.Push(v)
	return 2
}

func baseSelect(L *lua.LState) int {
	n := L.GetTop()
	if text, ok := L.Get(1).(lua.LString); ok && strings.HasPrefix(string(text), "#") {
		L.Push(lua.LNumber(n - 1))
		return 1
	}
	i := checkInt(L, 1)
	switch {
	case i < 0:
		i += n
	case i > n:
		i = n
	}
	if i < 1 {
		badArgument(L, 1, "index out of range")
	}
	return n - i
}

// maxUnpack is how many values a table can be unpacked to.
const maxUnpack = 8000

func (s *state) unpack(L *lua.LState) int {
	t := s.content(checkTable(L, 1))
	from := optInt(L, 2, 1)
	to := optInt(L, 3, -1)
	if L.GetTop() < 3 || L.Get(3) == lua.LNil {
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
	base := optInt(L, 2, 10)
	v := checkAny(L, 1)
	if base == 10 {
		if f, ok := plainNumber(v); ok {
			L.Push(lua.LNumber(f))
		} else {
			L.Push(lua.LNil)
		}
		return 1
	}
	if base < 2 || base > 36 {
		badArgument(L, 2, "base out of range")
	}
	if n, ok := parseUnsigned(checkString(L, 1), base); ok {
		L.Push(lua.LNumber(n))
	} else {
		L.Push(lua.LNil)
	}
	return 1
}

func toString(L *lua.LState) int {
	v := checkAny(L, 1)
	if text, ok := plainString(v); ok {
		L.Push(lua.LString(text))
		return 1
	}
	if t, ok := v.(*lua.LTable); ok {
		if meta, ok := t.Metatable.(*lua.LTable); ok {
			if f := meta.RawGetString("__tostring"); f != lua.LNil {
				L.Push(f)
				L.Push(v)
				L.Call(1, 1)
				return 1
			}
		}
	}
	L.Push(lua.LString(v.String()))
	return 1
}

func baseType(L *lua.LState) int {
	L.Push(lua.LString(checkAny(L, 1).Type().String()))
	return 1
}

// collectGarbage tells how many KiB the server uses, and leaves its garbage alone.
func (s *state) collectGarbage(L *lua.LState) int {
	if what, ok := L.Get(1).(lua.LString); ok && what != "count" {
		L.Push(lua.LNumber(0))
		return 1
	}
	objects, _ := s.heap()
	L.Push(lua.LNumber(objects / 1024))
	return 1
}
