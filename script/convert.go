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
		c.boolean(bool(v))
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

// boolean writes a boolean if the script uses RESP3, otherwise 1 or null. The writer converts it to
// the caller's version.
func (c *converter) boolean(b bool) {
	switch {
	case c.s.proto == 3:
		c.w.Bool(b)
	case b:
		c.w.Int(1)
	default:
		c.w.Null()
	}
}

// table writes a table. If a field names a type, the reply is a value of that type. Other tables
// are arrays that end before the first nil.
func (c *converter) table(t *lua.LTable) {
	if text, ok := t.RawGetString("err").(lua.LString); ok {
		c.w.Error(strings.TrimRight(cString(string(text)), "\r\n"))
		return
	}
	if text, ok := t.RawGetString("ok").(lua.LString); ok {
		c.w.Simple(cString(string(text)))
		return
	}
	if f, ok := t.RawGetString("double").(lua.LNumber); ok {
		c.w.Double(float64(f))
		return
	}
	if m, ok := t.RawGetString("map").(*lua.LTable); ok {
		m = c.s.content(m)
		c.w.Map(size(m))
		c.entries(m, true)
		return
	}
	if set, ok := t.RawGetString("set").(*lua.LTable); ok {
		set = c.s.content(set)
		c.w.Set(size(set))
		c.entries(set, false)
		return
	}
	if digits, ok := t.RawGetString("big_number").(lua.LString); ok {
		c.w.BigNumber(lineless(string(digits)))
		return
	}
	if v, ok := t.RawGetString("verbatim_string").(*lua.LTable); ok {
		format, ok1 := v.RawGetString("format").(lua.LString)
		text, ok2 := v.RawGetString("string").(lua.LString)
		if ok1 && ok2 {
			c.w.Verbatim((string(format) + "   ")[:3], string(text))
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

func size(t *lua.LTable) int {
	n := 0
	t.ForEach(func(_, _ lua.LValue) { n++ })
	return n
}

func (c *converter) entries(t *lua.LTable, values bool) {
	for k, v := t.Next(lua.LNil); k != lua.LNil && c.err == nil; k, v = t.Next(k) {
		c.value(k)
		if values {
			c.value(v)
		}
	}
}

func lineless(text string) string {
	return strings.NewReplacer("\r", " ", "\n", " ").Replace(text)
}
