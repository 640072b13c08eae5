package commands

import (
	"strings"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// This file has commands for keys of any type. Tools need some of these commands on every engine,
// even on one that is no simba.Keyspace. On such an engine, each mutex m that has an owner counts
// as a string with the key simba:{m}.

var keyspaceCommands = []command{
	{
		name: "flushall", arity: -1, flags: write | audited, categories: catDangerous, since: "1.0.0", run: (*client).flush,
		summary: "Break all tenures, if the setting flush-held-locks allows it",
		args:    "[ASYNC | SYNC]",
	},
	{
		name: "flushdb", arity: -1, flags: write | audited, categories: catDangerous, since: "1.0.0", run: (*client).flush,
		summary: "Break all tenures, as FLUSHALL: there is one database",
		args:    "[ASYNC | SYNC]",
	},
	{
		name: "type", arity: 2, flags: readonly | fast, keys: oneKey(existence),
		since: "1.0.0", run: (*client).runOnOwner, keyed: typeOf,
		summary: "Determine the type of a key: string or hash for a mutex that has an owner, zset for a queue",
		args:    "key",
	},
}

// runOnOwner is runKeyed for a command that reads one key and that tools need on every engine.
func (c *client) runOnOwner(args [][]byte) error {
	if c.x.store.keyspace != nil {
		return c.runKeyed(args)
	}
	var tx ownerTx
	mutex, ok := simba.ParseMutexChannel(string(args[1]))
	if ok {
		t, seq, err := c.backend().Owner(c.conn.Context(), mutex)
		if err != nil {
			return err
		}
		c.conn.ReplyAfter(seq)
		tx.lock = simba.Lock{Token: t.Token, Owner: t.Owner}
	}
	return c.call.entry.keyed(&keyTx{Tx: tx, w: c.w, c: c, one: true, oneKey: simba.Key{Mutex: mutex}}, args)
}

// ownerTx is a simba.Tx that can only read one lock key.
type ownerTx struct {
	simba.Tx
	lock simba.Lock
}

func (tx ownerTx) Lock(string) simba.Lock { return tx.lock }

// flushHeldLocks is the setting that lets FLUSHDB and FLUSHALL end tenures. By default the server
// refuses both commands while locks are held, because clients would lose their locks.
const flushHeldLocks = "flush-held-locks"

func flushSetting() Setting {
	var allowed atomic.Bool
	return Setting{
		Name: flushHeldLocks,
		Get:  func() string { return yesNo(allowed.Load()) },
		Set: func(s string) error {
			yes := strings.EqualFold(s, "yes")
			if !yes && !strings.EqualFold(s, "no") {
				return replyError("argument must be 'yes' or 'no'")
			}
			allowed.Store(yes)
			return nil
		},
	}
}

// flush serves FLUSHDB and FLUSHALL. It breaks every tenure that it finds, one by one. It keeps the
// queues, so the first waiters get the mutexes. A tenure that begins meanwhile may stay.
func (c *client) flush(args [][]byte) error {
	if len(args) > 2 || len(args) == 2 && !equalFold(args[1], "ASYNC") && !equalFold(args[1], "SYNC") {
		return errSyntax
	}
	if _, err := c.keyspace(); err != nil {
		return err
	}
	held := c.stats().Held
	if held > 0 && c.x.settings.find(flushHeldLocks).Get() != "yes" {
		return replyErrorf("ERR refused: %d locks are held; CONFIG SET %s yes allows it", held, flushHeldLocks)
	}
	for r := (simba.ScanRequest{Count: pageLength, Held: true}); ; {
		page, seq, err := c.backend().Scan(c.conn.Context(), r)
		if err != nil {
			return err
		}
		c.conn.ReplyAfter(seq)
		for _, mutex := range page.Mutexes {
			_, seq, err := c.backend().Break(c.conn.Context(), mutex, c.call.entry.full)
			c.conn.ReplyAfter(seq)
			if err != nil {
				return err
			}
			c.yield()
		}
		if r.Cursor = page.Cursor; r.Cursor == 0 {
			c.w.Simple("OK")
			return nil
		}
	}
}

func typeOf(t *keyTx, args [][]byte) error {
	k, kind := t.key(args), "string"
	switch l, exists := t.lookup(k); {
	case !exists:
		kind = "none"
	case k.Part == simba.KeyQueue:
		kind = "zset"
	case l.Fields != nil:
		kind = "hash"
	}
	t.w.Simple(kind)
	return nil
}

// pageLength is how many mutexes a command reads from the embedded engine before it yields.
const pageLength = 1000
