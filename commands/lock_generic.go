package commands

import (
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// writeFlag replies with 1 or 0.
func (t *keyTx) writeFlag(b bool) {
	if b {
		t.w.Int(1)
	} else {
		t.w.Int(0)
	}
}

// drop deletes a key of any type but a counter of tokens, and reports whether it existed.
//
// Who waits keeps its place when the queue is deleted: contenders of Simba 3.2 and 3.3, which have
// no queue, do that at each release. A token goes with its tenure.
func (t *keyTx) drop(k simba.Key) bool {
	_, exists := t.lookup(k)
	switch {
	case !exists:
	case k.Part == simba.KeyLock:
		t.Drop(k.Mutex)
	case k.Part == simba.KeyToken:
		t.DropToken(k.Mutex)
	}
	return exists
}

func del(t *keyTx, args [][]byte) error {
	for _, key := range args[1:] { // before anything is changed
		k := parseKey(key)
		if _, exists := t.lookup(k); exists && k.Part == simba.KeyFence {
			return viewError(args, k)
		}
	}
	return t.countKeys(args, t.drop)
}

// exists is TOUCH too: a lock has no time of its last access.
func exists(t *keyTx, args [][]byte) error {
	return t.countKeys(args, func(k simba.Key) bool {
		_, exists := t.lookup(k)
		return exists
	})
}

// countKeys replies with how many of the keys did; one that is given twice may count twice.
func (t *keyTx) countKeys(args [][]byte, did func(simba.Key) bool) error {
	var n int64
	for _, key := range args[1:] {
		if did(parseKey(key)) {
			n++
		}
	}
	t.w.Int(n)
	return nil
}

// The types that a key may have.
const (
	typeNone   = "none"
	typeString = "string"
	typeHash   = "hash"
	typeQueue  = "zset"
)

func (t *keyTx) typeOf(k simba.Key) string {
	switch l, exists := t.lookup(k); {
	case !exists:
		return typeNone
	case k.Part == simba.KeyQueue:
		return typeQueue
	case l.Fields != nil:
		return typeHash
	}
	return typeString
}

func typeOf(t *keyTx, args [][]byte) error {
	t.w.Simple(t.typeOf(parseKey(args[1])))
	return nil
}

// flushHeldLocks is the setting that lets FLUSHDB and FLUSHALL end tenures: in a Redis they
// tidy up, here somebody's lock would be gone.
const flushHeldLocks = "flush-held-locks"

func flushSetting() Setting {
	var allowed atomic.Bool
	return Setting{
		Name: flushHeldLocks,
		Get: func() string {
			if allowed.Load() {
				return "yes"
			}
			return "no"
		},
		Set: func(s string) error {
			switch yes := equalFold([]byte(s), "YES"); {
			case !yes && !equalFold([]byte(s), "NO"):
				return replyError("argument must be 'yes' or 'no'")
			default:
				allowed.Store(yes)
				return nil
			}
		},
	}
}

// flush is FLUSHDB and FLUSHALL. It breaks every tenure that it finds, one by one: what is
// taken meanwhile may stay, and so do the queues, whose first ones get the mutexes.
func (c *client) flush(args [][]byte) {
	if err := c.flushLocks(args); err != nil {
		c.fail(err)
		return
	}
	c.w.Simple("OK")
}

func (c *client) flushLocks(args [][]byte) error {
	if len(args) > 2 || len(args) == 2 && !equalFold(args[1], "ASYNC") && !equalFold(args[1], "SYNC") {
		return errSyntax
	}
	if _, err := c.keyspace(); err != nil {
		return err
	}
	held := c.stats().Held
	if held > 0 && findSetting(c.x.settings, flushHeldLocks).Get() != "yes" {
		return replyErrorf("ERR refused: %d locks are held; CONFIG SET %s yes allows it", held, flushHeldLocks)
	}
	for r := (simba.ScanRequest{Count: pageLength, Held: true}); ; {
		page, seq, err := c.backend().Scan(c.conn.Context(), r)
		if err != nil {
			return err
		}
		c.conn.RestOn(seq)
		for _, mutex := range page.Mutexes {
			_, seq, err := c.backend().Break(c.conn.Context(), mutex, c.running.full)
			c.conn.RestOn(seq)
			if err != nil {
				return err
			}
			c.giveWay()
		}
		if r.Cursor = page.Cursor; r.Cursor == 0 {
			return nil
		}
	}
}
