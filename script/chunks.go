package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (s *state) load(L *lua.LState) int {
	reader := checkFunction(L, 1)
	var text strings.Builder
	for {
		L.Push(reader)
		L.Call(0, 1)
		part, ok := plainString(L.Get(-1))
		isNil := L.Get(-1) == lua.LNil
		L.Pop(1)
		if isNil || ok && part == "" {
			break
		}
		if !ok {
			L.Push(lua.LNil)
			L.Push(lua.LString("reader function must return a string"))
			return 2
		}
		s.checkLength(L, text.Len()+len(part))
		text.WriteString(part)
	}
	return s.chunk(L, text.String(), "=(load)")
}

func (s *state) loadString(L *lua.LState) int {
	text := checkString(L, 1)
	return s.chunk(L, text, text)
}

// chunk compiles text. Binary chunks do not exist here.
func (s *state) chunk(L *lua.LState, text, name string) int {
	if L.GetTop() > 1 && L.Get(2) != lua.LNil {
		name = checkString(L, 2)
	}
	s.spend(L, len(text))
	proto, err := compileChunk(text, displayName(name))
	if err != nil {
		L.Push(lua.LNil)
		L.Push(lua.LString(err.Error()))
		return 2
	}
	L.Push(L.NewFunctionFromProto(proto))
	return 1
}

// displayName is how Lua shows the name of a chunk.
func displayName(name string) string {
	const longest = 60
	if name != "" && (name[0] == '=' || name[0] == '@') {
		return name[1:min(len(name), longest)]
	}
	line, _, more := strings.Cut(name, "\n")
	if len(line) > longest-17 {
		line, more = line[:longest-17], true
	}
	if more {
		line += "..."
	}
	return `[string "` + line + `"]`
}
