package script

import (
	"bytes"
	"strconv"

	lua "github.com/yuin/gopher-lua"
)

// reader converts a reply of the Host in RESP2 to a Lua value.
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
	case '*':
		if n := r.number(); n >= 0 {
			return r.array(n)
		}
		return lua.LFalse
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
