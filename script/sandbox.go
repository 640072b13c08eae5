package script

import (
	lua "github.com/yuin/gopher-lua"
)

// maxArrayIndex is the maximum index in the array part of a table. A write at an index allocates
// room for all lower indexes at once.
const maxArrayIndex = 1 << 14

func init() { lua.MaxArrayIndex = maxArrayIndex }

// sandbox holds the tables that scripts share. They are read-only: a script sees a proxy, whose
// metatable reads the content and refuses writes. Lua uses a metatable only for keys that a table
// does not have, so the proxy is empty.
type sandbox struct {
	globals    *lua.LTable                 // content of the global table
	contents   map[*lua.LTable]*lua.LTable // by proxy
	stringMeta *lua.LTable                 // proxy of the metatable of strings
	readonly   *lua.LFunction
	next       *lua.LFunction
	ipairs     *lua.LFunction
}

const errReadonly = "Attempt to modify a readonly table"

func (s *state) newSandbox() *sandbox {
	L := s.lua
	box := &sandbox{globals: newTable(0, 64), contents: map[*lua.LTable]*lua.LTable{}}
	s.sandbox = box
	proxy := newTable(0, 0)
	L.Env, L.G.Global = proxy, proxy // new functions take their environment from here

	box.readonly = L.NewFunction(func(L *lua.LState) int { raiseError(L, errReadonly); return 0 })
	box.next = L.NewFunction(s.baseNext)
	box.ipairs = L.NewFunction(ipairsNext)
	s.protect(proxy, box.globals)
	box.globals.Metatable = s.table(map[string]lua.LGFunction{"__index": noGlobal})

	meta := newTable(0, 8)
	s.openBase(proxy)
	s.openOperators(meta)
	str := s.table(s.stringLibrary())
	s.library("string", str)
	s.library("table", s.table(s.tableLibrary()))
	s.library("math", s.mathLibrary())
	s.library("redis", s.redisLibrary())

	meta.RawSetString("__index", str)
	L.SetMetatable(lua.LString(""), meta)
	seen := newTable(0, 1)
	seen.RawSetString("__index", box.globals.RawGetString("string"))
	box.stringMeta = s.protect(newTable(0, 0), seen)
	return box
}

func (s *state) protect(proxy, t *lua.LTable) *lua.LTable {
	meta := newTable(0, 2)
	meta.RawSetString("__index", t)
	meta.RawSetString("__newindex", s.readonly)
	proxy.Metatable = meta
	s.contents[proxy] = t
	return proxy
}

func (s *state) library(name string, t *lua.LTable) {
	s.globals.RawSetString(name, s.protect(newTable(0, 0), t))
}

func (s *state) table(functions map[string]lua.LGFunction) *lua.LTable {
	t := newTable(0, len(functions))
	for name, f := range functions {
		t.RawSetString(name, s.lua.NewFunction(f))
	}
	return t
}

// content returns the content of a proxy, and any other table itself.
func (s *state) content(t *lua.LTable) *lua.LTable {
	if inner, ok := s.contents[t]; ok {
		return inner
	}
	return t
}

// writable returns argument n. It raises an error unless the argument is a table that scripts may
// change.
func (s *state) writable(L *lua.LState, n int) *lua.LTable {
	t := checkTable(L, n)
	if _, ok := s.contents[t]; ok {
		raise(L, errReadonly)
	}
	return t
}

func noGlobal(L *lua.LState) int {
	name, _ := plainString(L.Get(2))
	raiseError(L, "Script attempted to access nonexistent global variable '%s'", name)
	return 0
}

// spend charges steps. It raises an error if the script must end.
func (s *state) spend(L *lua.LState, steps int) {
	if err := s.charge(steps); err != nil {
		raiseError(L, "%s", err.Error())
	}
}

// checkLength charges for a string of n bytes. It raises an error if the string is too long.
func (s *state) checkLength(L *lua.LState, n int) {
	if n < 0 || n > maxString {
		raiseError(L, "string length overflow")
	}
	s.spend(L, n/64)
}
