package script

import (
	lua "github.com/yuin/gopher-lua"
)

// maxArrayIndex is the highest index for which a table has an array. Writing there makes
// room for all before it at once, which must not be much.
const maxArrayIndex = 1 << 14

func init() { lua.MaxArrayIndex = maxArrayIndex }

// sandbox is what a script can reach. Nothing of it can be changed: what scripts see of a
// table of the sandbox is an empty front, since Lua asks a metatable only for keys that a table
// does not have.
type sandbox struct {
	globals    *lua.LTable                 // behind the front
	behind     map[*lua.LTable]*lua.LTable // by front
	stringMeta *lua.LTable                 // the metatable of strings, as scripts see it
	readonly   *lua.LFunction
	next       *lua.LFunction
	ipairs     *lua.LFunction
	yield      *lua.LFunction
	null       *lua.LUserData // cjson.null
}

const errReadonly = "Attempt to modify a readonly table"

func (s *state) newSandbox() *sandbox {
	L := s.lua
	box := &sandbox{globals: newTable(0, 64), behind: map[*lua.LTable]*lua.LTable{}, null: &lua.LUserData{Metatable: lua.LNil}}
	s.sandbox = box
	front := newTable(0, 0)
	L.Env, L.G.Global = front, front // before any function is made: they take their environment from here

	box.readonly = L.NewFunction(func(L *lua.LState) int { raiseError(L, errReadonly); return 0 })
	box.next = L.NewFunction(s.baseNext)
	box.ipairs = L.NewFunction(ipairsNext)
	s.protect(front, box.globals)
	box.globals.Metatable = s.table(map[string]lua.LGFunction{"__index": noGlobal})

	meta := newTable(0, 8)
	s.openBase(front)
	s.openOperators(meta)
	str := s.table(s.stringLibrary())
	s.library("string", str)
	s.library("table", s.table(s.tableLibrary()))
	s.library("math", s.mathLibrary())
	s.library("coroutine", s.coroutineLibrary())
	s.library("bit", s.table(bitLibrary()))
	s.library("cjson", s.jsonLibrary())
	s.library("redis", s.redisLibrary())

	meta.RawSetString("__index", str)
	L.SetMetatable(lua.LString(""), meta)
	seen := newTable(0, 1)
	seen.RawSetString("__index", box.globals.RawGetString("string"))
	box.stringMeta = s.protect(newTable(0, 0), seen)
	return box
}

// protect makes front show what is in t.
func (s *state) protect(front, t *lua.LTable) *lua.LTable {
	meta := newTable(0, 2)
	meta.RawSetString("__index", t)
	meta.RawSetString("__newindex", s.readonly)
	front.Metatable = meta
	s.behind[front] = t
	return front
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

// content is a table to read, behind its front if it has one.
func (s *state) content(t *lua.LTable) *lua.LTable {
	if inner, ok := s.behind[t]; ok {
		return inner
	}
	return t
}

// writable is the table that is argument n, if a library function may change it.
func (s *state) writable(L *lua.LState, n int) *lua.LTable {
	t := checkTable(L, n)
	if _, ok := s.behind[t]; ok {
		raise(L, errReadonly)
	}
	return t
}

func noGlobal(L *lua.LState) int {
	name, _ := plainString(L.Get(2))
	raiseError(L, "Script attempted to access nonexistent global variable '%s'", name)
	return 0
}

// spend charges steps for the work of a library function.
func (s *state) spend(L *lua.LState, steps int) {
	if err := s.charge(steps); err != nil {
		raiseError(L, "%s", err.Error())
	}
}

// checkLength refuses to make a string that is too long, and charges for one that is not.
func (s *state) checkLength(L *lua.LState, n int) {
	if n < 0 || n > maxString {
		raiseError(L, "string length overflow")
	}
	s.spend(L, n/64)
}
