package commands

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// SCAN, KEYS and DBSIZE read the whole keyspace. In a transaction they do not see the
// transaction's own changes, and they cause no conflict.

var scanCommands = []command{
	{
		name: "dbsize", arity: 1, flags: readonly | fast, since: "1.0.0", run: withoutTx(dbsize), keyed: dbsize,
		summary: "Return the number of mutexes that have an owner",
	},
	{
		name: "keys", arity: 2, flags: readonly, categories: catDangerous, since: "1.0.0", keyed: keysOf,
		summary: "Find all lock keys matching the given pattern",
		args:    "pattern",
	},
	{
		name: "scan", arity: -2, flags: readonly, since: "2.8.0", run: withoutTx(scan), keyed: scan,
		summary: "Iterate over the keys of the mutexes that have an owner",
		args:    "cursor [MATCH pattern] [COUNT count]",
	},
}

// page returns a page of the mutexes that have an owner. The reply waits until the page is durable.
func (t *keyTx) page(r simba.ScanRequest) (simba.ScanPage, error) {
	r.Held = true
	page, seq, err := t.c.scanPage(r, t.yield)
	if err != nil {
		return page, err
	}
	t.yield()
	t.c.conn.ReplyAfter(seq)
	return page, nil
}

// keyGlob selects the keys of mutexes by a glob. The key of mutex m has two spellings, m and
// simba:{m}. keyGlob uses simba:{m} if the glob begins with simba:{, and otherwise m. On an engine
// without a keyspace it always uses simba:{m}.
type keyGlob struct {
	glob   string
	tagged bool
}

func (t *keyTx) keyGlob(glob string) keyGlob {
	return keyGlob{glob, t.c.x.store.keyspace == nil || strings.HasPrefix(glob, "simba:{")}
}

func (g keyGlob) key(mutex string) string {
	if g.tagged {
		return simba.TaggedKeyOf(mutex)
	}
	return simba.KeyOf(mutex)
}

func (g keyGlob) match(mutex string) bool { return resp.Match(g.glob, g.key(mutex)) }

func (g keyGlob) keys(mutexes []string) []string {
	for i, m := range mutexes {
		mutexes[i] = g.key(m)
	}
	return mutexes
}

func scan(t *keyTx, args [][]byte) error {
	cursor, ok := parseUint(args[1])
	if !ok {
		return errCursor
	}
	r, g := simba.ScanRequest{Cursor: cursor, Count: defaultCount}, t.keyGlob("")
	for i := 2; i < len(args); i += 2 {
		switch {
		case i+1 == len(args):
			return errSyntax
		case equalFold(args[i], "MATCH"):
			glob, err := parseGlob("MATCH", args[i+1])
			if err != nil {
				return err
			}
			g = t.keyGlob(glob)
			r.Match = g.match
		case equalFold(args[i], "TYPE"):
			return errScanType
		case equalFold(args[i], "COUNT"):
			n, ok := parseInt(args[i+1])
			switch {
			case !ok:
				return errNotInteger
			case n < 1:
				return errSyntax
			}
			r.Count = int(min(n, simba.MaxCount))
		default:
			return errSyntax
		}
	}
	page, err := t.page(r)
	if err != nil {
		return err
	}
	writePage(t.w, page.Cursor, g.keys(page.Mutexes))
	return nil
}

func keysOf(t *keyTx, args [][]byte) error {
	glob, err := parseGlob("pattern", args[1])
	if err != nil {
		return err
	}
	g := t.keyGlob(glob)
	var found []string
	for r := (simba.ScanRequest{Count: simba.MaxCount, Match: g.match}); ; {
		page, err := t.page(r)
		if err != nil {
			return err
		}
		found = append(found, g.keys(page.Mutexes)...)
		if r.Cursor = page.Cursor; r.Cursor == 0 {
			break
		}
	}
	slices.SortFunc(found, func(a, b string) int {
		t.step()
		return strings.Compare(a, b)
	})
	found = slices.Compact(found) // the pages may have a mutex twice
	size := len("*1000000\r\n")
	for _, k := range found {
		size += len(k) + len("$100\r\n\r\n")
	}
	t.w.Grow(size)
	t.w.Array(len(found))
	for _, k := range found {
		t.step()
		t.w.BulkString(k)
	}
	return nil
}

func dbsize(t *keyTx, _ [][]byte) error {
	held := t.c.stats().Held
	if held < 0 {
		var err error
		if held, err = t.c.countHeld(); err != nil {
			return err
		}
	}
	t.w.Int(held)
	return nil
}

const (
	errCursor   replyError = "ERR invalid cursor"
	errScanType replyError = "ERR SCAN serves only the options MATCH and COUNT: this is a lock server"
	errCounting replyError = "TRYAGAIN the engine cannot count its mutexes in time; SIMBA.SCAN lists them"
)

// countHeld scans the mutexes that have an owner and counts them, for an engine that has no count.
// It may count a mutex twice if other mutexes change meanwhile.
func (c *client) countHeld() (n int64, err error) {
	ctx := c.conn.Context()
	if limit := c.x.cfg.StoreTimeout; limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, errCounting)
		defer cancel()
	}
	for r := (simba.ScanRequest{Count: simba.MaxCount, Held: true}); ; {
		page, seq, err := c.backend().Scan(ctx, r)
		switch over := errors.Is(context.Cause(ctx), errCounting); {
		case over && r.Cursor != 0: // the store has answered, but has too many mutexes
			return 0, errCounting
		case err != nil:
			return 0, err
		}
		c.conn.ReplyAfter(seq)
		n += int64(len(page.Mutexes))
		if r.Cursor = page.Cursor; r.Cursor == 0 {
			return n, nil
		}
	}
}

// scanPage returns a page of mutexes. It reads a large page of the embedded engine in parts, and
// calls yield in between.
func (c *client) scanPage(r simba.ScanRequest, yield func()) (all simba.ScanPage, replyAfter simba.Seq, err error) {
	if c.x.store.keyspace == nil {
		return c.backend().Scan(c.conn.Context(), r)
	}
	for left := r.Count; ; {
		r.Count = min(left, pageLength)
		page, seq, err := c.backend().Scan(c.conn.Context(), r)
		if err != nil {
			return simba.ScanPage{}, 0, err
		}
		if all.Cursor = page.Cursor; all.Mutexes == nil {
			all.Mutexes = page.Mutexes
		} else {
			all.Mutexes = append(slices.Grow(all.Mutexes, left), page.Mutexes...)
		}
		replyAfter = max(replyAfter, seq)
		left -= r.Count
		if r.Cursor = page.Cursor; r.Cursor == 0 || left <= 0 {
			return all, replyAfter, nil
		}
		yield()
	}
}

func writePage(w *resp.Writer, cursor uint64, names []string) {
	w.Array(2)
	w.BulkString(strconv.FormatUint(cursor, 10))
	writeStrings(w, names)
}
