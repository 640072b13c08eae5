package script

import (
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/simba-resp/simba-resp/resp"
)

const (
	maxReplyDepth = 500
	// maxReply is the maximum size of a reply in bytes. A short table that contains another one
	// many times can make a very long reply.
	maxReply = 16 << 20
)

const errReplyTooLong Error = "ERR the reply of the script is too long"

func (s *state) reply(w *resp.Writer, v lua.LValue) error {
	c := converter{s: s, w: w, limit: w.Len() + maxReply}
	c.value(v)
	return c.err
}

type converter struct {
	s     *state
	w     *resp.Writer
	limit int
	depth int
	err   error
}

func (c *converter) value(v lua.LValue) {
	if c.err != nil {
		return
	}
	switch v := v.(type) {
	case lua.LString:
		c.w.BulkString(string(v))
	case lua.LNumber:
		c.w.Int(toInteger(float64(v)))
	case lua.LBool:
		if v {
			c.w.Int(1)
		} else {
			c.w.Null()
		}
	case *lua.LTable:
		c.depth++
		if c.depth > maxReplyDepth {
			c.w.Error("ERR reached lua stack limit")
		} else {
			c.table(c.s.content(v))
		}
		c.depth--
	default:
		c.w.Null()
	}
	if err := c.s.charge(1); err != nil {
		c.err = err
	}
	if c.w.Len() > c.limit {
		c.err = errReplyTooLong
	}
}

// resp3Fields are the fields of tables that Redis converts to types of RESP3.
var resp3Fields = []string{"double", "map", "set", "big_number", "verbatim_string"}

// table writes an error, a status, or an array that ends before the first nil.
func (c *converter) table(t *lua.LTable) {
	if text, ok := t.RawGetString("err").(lua.LString); ok {
		c.w.Error(strings.TrimRight(cString(string(text)), "\r\n"))
		return
	}
	if text, ok := t.RawGetString("ok").(lua.LString); ok {
		c.w.Simple(cString(string(text)))
		return
	}
	for _, name := range resp3Fields {
		if t.RawGetString(name) != lua.LNil {
			c.err = Error("ERR scripts cannot return a table with the field '" + name + "'")
			return
		}
	}
	n := 0
	for t.RawGet(lua.LNumber(n+1)) != lua.LNil {
		n++
	}
	c.w.Array(n)
	for i := range n {
		c.value(t.RawGet(lua.LNumber(i + 1)))
	}
}
