package script

import (
	"bytes"
	"math"
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// reader converts a reply of the Host to a Lua value.
type reader struct {
	reply []byte
	bad   bool // the reply is not RESP
}

func (r *reader) line() string {
	end := bytes.Index(r.reply, []byte("\r\n"))
	if end < 0 {
		r.bad = true
		return ""
	}
	line := string(r.reply[:end])
	r.reply = r.reply[end+2:]
	return line
}

func (r *reader) number() int {
	n, err := strconv.Atoi(r.line())
	if err != nil || n > len(r.reply) {
		r.bad = true
		return 0
	}
	return n
}

func (r *reader) bytes(n int) lua.LString {
	if n < 0 || n+2 > len(r.reply) {
		r.bad = true
		return ""
	}
	text := lua.LString(r.reply[:n])
	r.reply = r.reply[n+2:]
	return text
}

func (r *reader) value() lua.LValue {
	if r.bad || len(r.reply) == 0 {
		r.bad = true
		return lua.LNil
	}
	kind := r.reply[0]
	r.reply = r.reply[1:]
	switch kind {
	case '+':
		return field("ok", lua.LString(r.line()))
	case '-':
		return errorTable(r.line())
	case ':':
		n, err := strconv.ParseInt(r.line(), 10, 64)
		r.bad = r.bad || err != nil
		return lua.LNumber(n)
	case '$':
		if n := r.number(); n >= 0 {
			return r.bytes(n)
		}
		return lua.LFalse
	case '*', '>':
		n := r.number()
		if n < 0 {
			return lua.LFalse
		}
		return r.array(n)
	case '_':
		r.line()
		return lua.LNil
	case '#':
		return lua.LBool(r.line() == "t")
	case ',':
		return field("double", r.double())
	case '(':
		return field("big_number", lua.LString(r.line()))
	case '=':
		text := r.bytes(r.number())
		if len(text) < 4 {
			r.bad = true
			return lua.LNil
		}
		t := newTable(0, 2)
		t.RawSetString("format", text[:3])
		t.RawSetString("string", text[4:])
		return field("verbatim_string", t)
	case '%':
		return field("map", r.entries(r.number(), false))
	case '~':
		return field("set", r.entries(r.number(), true))
	case '|': // attributes of the value that follows
		r.entries(r.number(), false)
		return r.value()
	}
	r.bad = true
	return lua.LNil
}

func (r *reader) array(n int) *lua.LTable {
	t := newTable(n, 0)
	for i := range n {
		v := r.value()
		if r.bad {
			break
		}
		t.RawSetInt(i+1, v)
	}
	return t
}

func (r *reader) entries(n int, set bool) *lua.LTable {
	t := newTable(0, max(n, 0))
	for range n {
		key, v := r.value(), lua.LValue(lua.LTrue)
		if !set {
			v = r.value()
		}
		if r.bad {
			break
		}
		if f, ok := key.(lua.LNumber); key == lua.LNil || ok && math.IsNaN(float64(f)) {
			continue // nil and NaN are no keys of a table
		}
		t.RawSet(key, v)
	}
	return t
}

func (r *reader) double() lua.LNumber {
	f, err := strconv.ParseFloat(r.line(), 64)
	r.bad = r.bad || err != nil && !math.IsInf(f, 0)
	return lua.LNumber(f)
}
