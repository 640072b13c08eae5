package commands

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// The part of Redis' keyspace that tools look at, with an engine that has no keys: a mutex that
// has an owner is a string key, simba:{m}, as it is in an engine that keeps it in a Redis.

const (
	errCursor   replyError = "ERR invalid cursor"
	errCounting replyError = "TRYAGAIN the engine cannot count its mutexes in time; SIMBA.SCAN lists them"
)

// withoutKeys is how a command of the keyspace runs that tools need on every engine: fallback
// serves it on those that have no keys.
func withoutKeys(fallback func(*client, [][]byte)) func(*client, [][]byte) {
	return func(c *client, args [][]byte) {
		if c.x.keyspace == nil {
			fallback(c, args)
		} else {
			c.runKeyed(args)
		}
	}
}

func (c *client) dbsize([][]byte) {
	held := c.stats().Held
	if held < 0 {
		var err error
		if held, err = c.countHeld(); err != nil {
			c.fail(err)
			return
		}
	}
	c.w.Int(held)
}

// countHeld counts the mutexes that have an owner in an engine that has no figure
// for them. As with SCAN, one may count twice if others come and go meanwhile.
func (c *client) countHeld() (n int64, err error) {
	ctx := c.conn.Context()
	if limit := c.x.storeTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errCounting)
		defer cancel()
	}
	for r := (simba.ScanRequest{Count: simba.MaxCount, Held: true}); ; {
		page, seq, err := c.backend().Scan(ctx, r)
		switch over := errors.Is(context.Cause(ctx), errCounting); {
		case over && r.Cursor != 0: // the store answers, but has too many
			return 0, errCounting
		case err != nil:
			return 0, err
		}
		c.conn.RestOn(seq)
		n += int64(len(page.Mutexes))
		if r.Cursor = page.Cursor; r.Cursor == 0 {
			return n, nil
		}
	}
}

// pageLength is at how many mutexes a scan of an engine that has them in memory looks without a pause.
const pageLength = 1000

// scanPage is a backend's Scan. Where that computes, others have the processor now and then, by giveWay: whoever asks for many
// mutexes gets them of several pages.
func (c *client) scanPage(scan func(context.Context, simba.ScanRequest) (simba.ScanPage, simba.Seq, error), r simba.ScanRequest, giveWay func()) (all simba.ScanPage, rests simba.Seq, err error) {
	if c.x.keyspace == nil {
		return scan(c.conn.Context(), r)
	}
	for left := r.Count; ; {
		r.Count = min(left, pageLength)
		page, seq, err := scan(c.conn.Context(), r)
		if err != nil {
			return simba.ScanPage{}, 0, err
		}
		if all.Cursor = page.Cursor; all.Mutexes == nil {
			all.Mutexes = page.Mutexes
		} else {
			all.Mutexes = append(slices.Grow(all.Mutexes, left), page.Mutexes...)
		}
		rests = max(rests, seq)
		left -= r.Count
		if r.Cursor = page.Cursor; r.Cursor == 0 || left <= 0 {
			return all, rests, nil
		}
		giveWay()
	}
}

// stats returns the engine's figures; what they count must be settled before it
// is told, like anything else.
func (c *client) stats() simba.Stats {
	s := c.backend().Stats()
	c.conn.RestOn(s.Seq)
	return s
}

// keyScan is a parsed SCAN.
type keyScan struct {
	simba.ScanRequest
	matching, typed bool
	glob, kind      string // of MATCH and TYPE
}

func parseKeyScan(args [][]byte) (s keyScan, err error) {
	cursor, ok := parseUint(args[1])
	if !ok {
		return s, errCursor
	}
	s.Cursor, s.Count, s.Held = cursor, defaultCount, true
	for i := 2; i < len(args); i += 2 {
		if i+1 == len(args) {
			return s, errSyntax
		}
		value := args[i+1]
		switch {
		case equalFold(args[i], "MATCH"):
			if s.glob, err = parseGlob("MATCH", value); err != nil {
				return s, err
			}
			s.matching = true
		case equalFold(args[i], "TYPE"):
			s.typed, s.kind = true, string(value)
		case equalFold(args[i], "COUNT"):
			n, ok := parseInt(value)
			if !ok {
				return s, errNotInteger
			}
			if n < 1 {
				return s, errSyntax
			}
			s.Count = int(min(n, simba.MaxCount))
		default:
			return s, errSyntax
		}
	}
	return s, nil
}

func (c *client) scan(args [][]byte) {
	s, err := parseKeyScan(args)
	if err != nil {
		c.fail(err)
		return
	}
	if s.matching {
		s.Match = func(mutex string) bool { return resp.Match(s.glob, simba.MutexChannel(mutex)) }
	}
	page, seq, err := c.scanPage(c.backend().Scan, s.ScanRequest, c.giveWay)
	if err != nil {
		c.fail(err)
		return
	}
	c.conn.RestOn(seq)
	var names []string
	if !s.typed || strings.EqualFold(s.kind, typeString) {
		for _, m := range page.Mutexes {
			names = append(names, simba.MutexChannel(m))
		}
	}
	c.writePage(page.Cursor, names)
}

// ownerOfKey returns the tenure behind a lock key, the zero Tenure for a key that
// does not exist.
func (c *client) ownerOfKey(key []byte) (mutex string, t simba.Tenure, err error) {
	mutex, ok := simba.ParseMutexChannel(string(key))
	if !ok {
		return "", t, nil
	}
	t, seq, err := c.backend().Owner(c.conn.Context(), mutex)
	c.conn.RestOn(seq)
	return mutex, t, err
}

func (c *client) typeOf(args [][]byte) {
	switch _, t, err := c.ownerOfKey(args[1]); {
	case err != nil:
		c.fail(err)
	case t.Owner == "":
		c.w.Simple(typeNone)
	default:
		c.w.Simple(typeString)
	}
}

func (c *client) strlen(args [][]byte) {
	_, t, err := c.ownerOfKey(args[1])
	if err != nil {
		c.fail(err)
		return
	}
	c.w.Int(int64(len(t.Owner)))
}

// What a mutex and a waiter take in the embedded engine besides their names: its
// BenchmarkHeldMutexBytes and the sizes of what a waiter needs, rounded up. For an
// estimate.
const (
	mutexOverhead  = 112
	waiterOverhead = 192
	fieldOverhead  = 32 // two strings
)

func (c *client) memoryUsage(args [][]byte) {
	if err := checkMemoryUsage(args); err != nil {
		c.fail(err)
		return
	}
	if c.x.keyspace != nil {
		if err := c.transact(func(t *keyTx) error { return memoryUsage(t, args) }); err != nil {
			c.fail(err)
		}
		return
	}
	switch mutex, t, err := c.ownerOfKey(args[2]); {
	case err != nil:
		c.fail(err)
	case t.Owner == "":
		c.w.Null()
	default:
		c.w.Int(int64(mutexOverhead + len(mutex) + len(t.Owner) + t.Waiters*waiterOverhead))
	}
}

func checkMemoryUsage(args [][]byte) error {
	switch {
	case len(args) == 3:
		return nil
	case len(args) != 5 || !equalFold(args[3], "SAMPLES"):
		return errSyntax
	}
	switch n, ok := parseInt(args[4]); {
	case !ok:
		return errNotInteger
	case n < 0:
		return errSyntax
	}
	return nil
}

// memoryUsage is MEMORY USAGE of a lock key. A queue counts with its mutex, if it has a lock.
func memoryUsage(t *keyTx, args [][]byte) error {
	k := parseKey(args[2])
	l, exists := t.lookup(k)
	if !exists {
		t.w.Null()
		return nil
	}
	size := mutexOverhead + len(k.Mutex) + len(l.Owner) + len(t.Queue(k.Mutex))*waiterOverhead
	for _, f := range l.Fields {
		size += fieldOverhead + len(f.Name) + len(f.Value)
	}
	t.w.Int(int64(size))
	return nil
}
