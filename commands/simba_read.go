package commands

import (
	"math"
	"strconv"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// defaultCount is the COUNT of listings that go on in a later call or that show
// the newest of many.
const defaultCount = 10

func (o *options) count() int { return int(o.integer(1, simba.MaxCount)) }

func (c *client) simbaOwner(args [][]byte) {
	mutex, err := parseMutex(args[1])
	if err != nil {
		c.fail(err)
		return
	}
	t, seq, err := c.backend().Owner(c.conn.Context(), mutex)
	if err != nil {
		c.fail(err)
		return
	}
	c.conn.RestOn(seq)
	w := c.w
	if t.IsFree() {
		w.Null()
		return
	}
	w.Map(9)
	w.BulkString("owner")
	w.BulkString(t.Owner)
	w.BulkString("token")
	w.Uint(t.Token)
	w.BulkString("acquired_at")
	w.Int(t.AcquiredAt)
	w.BulkString("ttl_at")
	w.Int(t.TTLAt)
	w.BulkString("transition_at")
	w.Int(t.TransitionAt)
	w.BulkString("now")
	w.Int(t.Now)
	w.BulkString("ttl")
	w.Int(t.TTL.Milliseconds())
	w.BulkString("transition")
	w.Int(t.Transition.Milliseconds())
	w.BulkString("waiters")
	w.Int(int64(t.Waiters))
}

// parseQueue reads SIMBA.QUEUE. Without COUNT the whole queue is shown, as far as
// a COUNT could.
func parseQueue(args [][]byte) (mutex string, count int, err error) {
	if mutex, err = parseMutex(args[1]); err != nil {
		return "", 0, err
	}
	count = simba.MaxCount
	o := options{rest: args[2:]}
	for o.next() {
		switch {
		case o.is("COUNT"):
			count = o.count()
		default:
			o.unknown()
		}
	}
	return mutex, count, o.err
}

func (c *client) simbaQueue(args [][]byte) {
	mutex, count, err := parseQueue(args)
	if err != nil {
		c.fail(err)
		return
	}
	entries, seq, err := c.backend().Queue(c.conn.Context(), mutex, count)
	if err != nil {
		c.fail(err)
		return
	}
	c.conn.RestOn(seq)
	w := c.w
	w.Array(len(entries))
	for _, e := range entries {
		w.Map(4)
		w.BulkString("contender")
		w.BulkString(e.Contender)
		w.BulkString("position")
		w.Int(int64(e.Position))
		w.BulkString("waiting")
		w.Int(e.Waiting.Milliseconds())
		w.BulkString("kind")
		if e.Blocked {
			w.BulkString("blocked")
		} else {
			w.BulkString("polling")
		}
	}
}

func parseScan(args [][]byte) (r simba.ScanRequest, err error) {
	cursor, ok := parseUint(args[1])
	if !ok {
		return r, errCursor
	}
	r.Cursor, r.Count = cursor, defaultCount
	o := options{rest: args[2:]}
	for o.next() {
		switch {
		case o.is("MATCH"):
			glob := o.glob()
			r.Match = func(mutex string) bool { return resp.Match(glob, mutex) }
		case o.is("COUNT"):
			r.Count = o.count()
		case o.is("STATE"):
			r.Held, r.Contended = o.state()
		default:
			o.unknown()
		}
	}
	return r, o.err
}

func (o *options) state() (held, contended bool) {
	switch v := o.value(); {
	case o.err != nil:
	case equalFold(v, "HELD"):
		return true, false
	case equalFold(v, "CONTENDED"):
		return false, true
	default:
		o.err = replyErrorf("ERR STATE must be held or contended, not '%s'", shorten(v))
	}
	return false, false
}

func (c *client) simbaScan(args [][]byte) {
	r, err := parseScan(args)
	if err != nil {
		c.fail(err)
		return
	}
	page, seq, err := c.scanPage(c.backend().Scan, r, c.giveWay)
	if err != nil {
		c.fail(err)
		return
	}
	c.conn.RestOn(seq)
	c.writePage(page.Cursor, page.Mutexes)
}

// writePage replies with a page of a scan and the cursor of the next.
func (c *client) writePage(cursor uint64, names []string) {
	c.w.Array(2)
	c.w.BulkString(strconv.FormatUint(cursor, 10))
	c.w.Array(len(names))
	for _, n := range names {
		c.w.BulkString(n)
	}
}

// parseHistory reads SIMBA.HISTORY. One who asks SINCE an event wants to close a
// gap, so without COUNT no event is left out.
func parseHistory(args [][]byte) (r simba.HistoryRequest, err error) {
	if r.Mutex, err = parseMutex(args[1]); err != nil {
		return r, err
	}
	o := options{rest: args[2:]}
	for o.next() {
		switch {
		case o.is("COUNT"):
			r.Count = o.count()
		case o.is("SINCE"):
			r.Since = simba.Seq(o.integer(0, math.MaxInt64))
		default:
			o.unknown()
		}
	}
	switch {
	case r.Count > 0:
	case o.has("SINCE"):
		r.Count = simba.MaxCount
	default:
		r.Count = defaultCount
	}
	return r, o.err
}

func (c *client) simbaHistory(args [][]byte) {
	r, err := parseHistory(args)
	if err != nil {
		c.fail(err)
		return
	}
	events, seq, err := c.backend().History(c.conn.Context(), r)
	if err != nil {
		c.fail(err)
		return
	}
	c.conn.RestOn(seq)
	w := c.w
	w.Array(len(events))
	for _, e := range events {
		w.Map(6)
		w.BulkString("seq")
		w.Uint(uint64(e.Seq))
		w.BulkString("at")
		w.Int(e.At)
		w.BulkString("event")
		w.BulkString(e.Kind.String())
		w.BulkString("owner")
		w.BulkString(e.Owner)
		w.BulkString("token")
		w.Uint(e.Token)
		w.BulkString("reason")
		w.BulkString(e.Reason)
	}
}

// simbaHelp replies with the syntax and the summary of each SIMBA command.
func (c *client) simbaHelp([][]byte) {
	var lines []string
	for _, e := range c.x.table.entries {
		if e.group == simbaGroup {
			lines = append(lines, usage(e.command), "    "+e.summary+".")
		}
	}
	lines = append(lines, "All times are in milliseconds.")
	c.writeLines(lines)
}

func (c *client) writeLines(lines []string) {
	c.w.Array(len(lines))
	for _, l := range lines {
		c.w.Simple(l)
	}
}
