package commands

import (
	"cmp"
	"math"
	"slices"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

var simbaOwnerRow = command{
	name: "simba.owner", arity: 2, flags: readonly | fast, keys: mutexRead, since: "0.1.0", run: (*client).simbaOwner,
	summary: "Shows the owner of the mutex, its token, its windows, its start and its connection",
	args:    "mutex",
}

var simbaQueueRow = command{
	name: "simba.queue", arity: -2, flags: readonly, keys: mutexRead, since: "0.1.0", run: (*client).simbaQueue,
	summary: "Lists the waiters of the mutex, in order",
	args:    "mutex [COUNT count]",
}

var simbaScanRow = command{
	name: "simba.scan", arity: -2, flags: readonly, since: "0.1.0", run: (*client).simbaScan,
	summary: "Iterates over the mutexes that have an owner or waiters",
	args:    "cursor [MATCH pattern] [COUNT count] [STATE <held | contended>]",
}

var simbaHistoryRow = command{
	name: "simba.history", arity: -2, flags: readonly, keys: mutexRead, since: "0.1.0", run: (*client).simbaHistory,
	summary: "Lists the events of the mutex and its queue, oldest first",
	args:    "mutex [COUNT count] [SINCE seq]",
}

func (c *client) simbaOwner(args [][]byte) error {
	mutex, err := parseMutex(args[1])
	if err != nil {
		return err
	}
	t, seq, err := c.backend().Owner(c.conn.Context(), mutex)
	if err != nil {
		return err
	}
	c.conn.ReplyAfter(seq)
	w := c.w
	if t.IsFree() {
		w.Null()
		return nil
	}
	w.Map(11)
	w.Pairs(
		"owner", t.Owner,
		"token", int64(t.Token),
		"acquired_at", t.AcquiredAt,
		"ttl_at", t.TTLAt,
		"transition_at", t.TransitionAt,
		"now", t.Now,
		"ttl", t.TTL.Milliseconds(),
		"transition", t.Transition.Milliseconds(),
		"waiters", int64(t.Waiters),
	)
	w.BulkString("since")
	if t.StartedAt == 0 {
		w.Null()
	} else {
		w.Int(t.StartedAt)
	}
	w.BulkString("connection")
	c.writeConnection(t.Session)
	return nil
}

// writeConnection writes the connection of a session. It writes null if this server has no such
// connection.
func (c *client) writeConnection(session uint64) {
	conn := (*resp.Conn)(nil)
	if session != 0 { // 0 = none; avoid the lookup, which locks the server
		conn = c.x.server.Conn(session)
	}
	if conn == nil {
		c.w.Null()
		return
	}
	c.w.MapOf("id", int64(conn.ID()), "addr", conn.RemoteAddr(), "name", conn.Name())
}

func (c *client) simbaQueue(args [][]byte) error {
	mutex, err := parseMutex(args[1])
	if err != nil {
		return err
	}
	count := simba.MaxCount
	o := options{rest: args[2:]}
	for o.next("COUNT") {
		count = o.count()
	}
	if o.err != nil {
		return o.err
	}
	entries, seq, err := c.backend().Queue(c.conn.Context(), mutex, count)
	if err != nil {
		return err
	}
	c.conn.ReplyAfter(seq)
	c.w.Array(len(entries))
	for _, e := range entries {
		kind := "polling"
		if e.Blocked {
			kind = "blocked"
		}
		c.w.MapOf("contender", e.Contender, "position", int64(e.Position), "waiting", e.Waiting.Milliseconds(), "kind", kind)
	}
	return nil
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

func (c *client) simbaScan(args [][]byte) error {
	cursor, ok := parseUint(args[1])
	if !ok {
		return errCursor
	}
	r := simba.ScanRequest{Cursor: cursor, Count: defaultCount}
	o := options{rest: args[2:]}
	for o.next("MATCH", "COUNT", "STATE") {
		switch o.name {
		case "MATCH":
			glob := o.text(maxGlobLen)
			r.Match = func(mutex string) bool { return resp.Match(glob, mutex) }
		case "COUNT":
			r.Count = o.count()
		case "STATE":
			r.Held, r.Contended = o.state()
		}
	}
	if o.err != nil {
		return o.err
	}
	page, seq, err := c.scanPage(r, c.yield)
	if err != nil {
		return err
	}
	c.conn.ReplyAfter(seq)
	writePage(c.w, page.Cursor, page.Mutexes)
	return nil
}

// withGrant adds the grant of the present tenure to the events, unless they have it. The server has
// dropped the event, or has not seen it, or newer events fill the COUNT of the request. The new
// event has the number of the one before it.
func withGrant(events []simba.Event, present simba.Tenure) []simba.Event {
	grant := simba.Event{
		Kind: simba.EventAcquired, At: cmp.Or(present.StartedAt, present.AcquiredAt), Owner: present.Owner, Token: present.Token,
	}
	at := 0
	for i, e := range events {
		switch {
		case e.Token == present.Token:
			return events
		case e.Token != 0 && e.Token < present.Token:
			at, grant.Seq = i+1, e.Seq
		}
	}
	return slices.Insert(events, at, grant)
}

func (c *client) simbaHistory(args [][]byte) error {
	mutex, err := parseMutex(args[1])
	if err != nil {
		return err
	}
	r := simba.HistoryRequest{Mutex: mutex, Count: defaultCount}
	o := options{rest: args[2:]}
	for o.next("COUNT", "SINCE") {
		switch o.name {
		case "COUNT":
			r.Count = o.count()
		case "SINCE":
			r.Since = simba.Seq(o.integer(0, math.MaxInt64))
		}
	}
	if o.err != nil {
		return o.err
	}
	if o.has("SINCE") && !o.has("COUNT") { // the client wants all events that it has missed
		r.Count = simba.MaxCount
	}
	var present simba.Tenure
	var replyAfter simba.Seq
	if r.Since == 0 && !c.lost().over() {
		// If the store does not reply, the events in memory are still of use.
		if t, seq, err := c.backend().Owner(c.conn.Context(), r.Mutex); err == nil {
			present, replyAfter = t, seq
		}
	}
	events, seq, err := c.backend().History(c.conn.Context(), r)
	if err != nil {
		return err
	}
	c.conn.ReplyAfter(max(seq, replyAfter))
	if !present.IsFree() {
		events = withGrant(events, present)
	}
	c.w.Array(len(events))
	for _, e := range events {
		c.w.MapOf(
			"seq", int64(e.Seq),
			"at", e.At,
			"event", e.Kind.String(),
			"owner", e.Owner,
			"token", int64(e.Token),
			"reason", e.Reason,
		)
	}
	return nil
}
