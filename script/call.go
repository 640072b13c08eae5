package script

import (
	"github.com/tidwall/redcon"
	lua "github.com/yuin/gopher-lua"
)

// keptArena is the maximum size in bytes of the arguments' memory that the next call reuses.
const keptArena = 64 << 10

func (s *state) redisCall(L *lua.LState) int {
	v := s.call(L)
	if isError(v) {
		L.Error(v, 0)
	}
	return push(L, v)
}

func (s *state) redisPcall(L *lua.LState) int {
	return push(L, s.call(L))
}

func isError(v lua.LValue) bool {
	t, ok := v.(*lua.LTable)
	return ok && t.RawGetString("err") != lua.LNil
}

// callSteps is the price of a call in steps.
const callSteps = 8

// call runs the command in the arguments and returns its reply as a Lua value.
func (s *state) call(L *lua.LState) lua.LValue {
	s.spend(L, callSteps)
	n := L.GetTop()
	if n == 0 {
		return errorTable("ERR Please specify at least one argument for this redis lib call")
	}
	s.arena, s.args = s.arena[:0], s.args[:0]
	size := 0
	for i := 1; i <= n; i++ {
		switch v := L.Get(i).(type) {
		case lua.LString:
			size += len(v)
		case lua.LNumber:
			size += 24
		default:
			return errorTable("ERR Lua redis lib command arguments must be strings or integers")
		}
	}
	if cap(s.arena) < size || cap(s.arena) > keptArena {
		s.arena = make([]byte, 0, max(size, 256))
	}
	for i := 1; i <= n; i++ {
		start := len(s.arena)
		switch v := L.Get(i).(type) {
		case lua.LString:
			s.arena = append(s.arena, v...)
		case lua.LNumber:
			s.arena = appendG(s.arena, float64(v), 17, 1e17)
		}
		s.args = append(s.args, s.arena[start:len(s.arena):len(s.arena)])
	}
	s.spend(L, size/64)
	reply := s.host.Call(s.args)
	s.spend(L, len(reply)/64)
	_, v := redcon.ReadNextRESP(reply)
	return luaValue(v)
}
