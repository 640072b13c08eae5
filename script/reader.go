package script

import (
	"github.com/tidwall/redcon"
	lua "github.com/yuin/gopher-lua"
)

// luaValue converts a reply of the Host to a Lua value.
func luaValue(r redcon.RESP) lua.LValue {
	switch r.Type {
	case redcon.String:
		return field("ok", lua.LString(r.Data))
	case redcon.Error:
		return errorTable(r.String())
	case redcon.Integer:
		return lua.LNumber(r.Int())
	case redcon.Array:
		t := newTable(r.Count, 0)
		r.ForEach(func(element redcon.RESP) bool {
			t.Append(luaValue(element))
			return true
		})
		return t
	}
	if r.Data == nil { // null
		return lua.LFalse
	}
	return lua.LString(r.Data)
}
