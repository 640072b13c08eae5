package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"
)

func (s *state) load(L *lua.LState) int {
	reader := checkFunction(L, 1)
	var text strings.Builder
	for {
		v := call1(L, reader)
		part, ok := plainString(v)
		if v == lua.LNil || ok && part == "" {
			break
		}
		if !ok {
			return push(L, lua.LNil, lua.LString("reader function must return a string"))
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

// chunk compiles text. It supports no binary chunks.
func (s *state) chunk(L *lua.LState, text, name string) int {
	name = optString(L, 2, name)
	s.spend(L, len(text))
	proto, err := compileChunk(text, displayName(name))
	if err != nil {
		return push(L, lua.LNil, lua.LString(err.Error()))
	}
	return push(L, L.NewFunctionFromProto(proto))
}

// displayName returns the name of a chunk as Lua shows it.
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
