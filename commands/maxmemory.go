package commands

import (
	"log/slog"
	"math"
	"sync/atomic"
)

// memoryLimit is maxmemory: it compares the bytes that the engine counts of its mutexes with a
// limit. Both are known at once, so what a command adds or frees counts for the next one. The zero
// memoryLimit has no limit.
//
// Each command is compared when it begins, a transaction and a script too. So the sum can exceed
// the limit by what the commands add that run at one time.
//
// The rest of the process' memory is bounded otherwise: what connections hold by limits of each of
// them, scripts by their cache, garbage by how much the heap may grow before it is collected.
type memoryLimit struct {
	bytes  atomic.Uint64 // 0 = no limit
	used   func() uint64
	log    *slog.Logger
	logged atomic.Bool // the log says that the limit is exceeded
}

// exceeded reports whether what grows is refused.
func (l *memoryLimit) exceeded() bool {
	limit := l.bytes.Load()
	if limit == 0 {
		return false
	}
	used := l.used()
	switch logged := l.logged.Load(); {
	case !logged && used > limit:
		if l.logged.CompareAndSwap(false, true) {
			l.log.Warn("used memory is above maxmemory: what takes more is refused", "used", used, "maxmemory", limit)
		}
	case logged && used <= limit-limit/8: // else a server that is about full would fill its log
		l.clear(used, limit)
	}
	return used > limit
}

// clear has the log say that nothing is refused, if it says otherwise.
func (l *memoryLimit) clear(used, limit uint64) {
	if l.logged.CompareAndSwap(true, false) {
		l.log.Info("used memory is no longer above maxmemory: nothing is refused", "used", used, "maxmemory", limit)
	}
}

// set changes the limit; 0 = none.
func (l *memoryLimit) set(limit uint64) {
	l.bytes.Store(limit)
	if limit == 0 {
		l.clear(l.used(), 0)
		return
	}
	l.exceeded() // so that the log says it at once
}

// SetMaxMemory limits the memory that the engine's mutexes may take, in bytes; 0 = no limit. Above
// it, what takes more is refused by simba.ErrOutOfMemory. Cached scripts may take an eighth of it.
// It is for an engine that is a simba.Keyspace: others count no mutexes.
func (x *Commands) SetMaxMemory(bytes uint64) {
	scripts := bytes / 8
	if bytes == 0 {
		scripts = math.MaxInt
	}
	x.scripting.runner.LimitCache(int(min(scripts, math.MaxInt)))
	x.memory.set(bytes)
}

// dataset is how many bytes the engine's mutexes take.
func (x *Commands) dataset() uint64 {
	if x.keyspace == nil {
		return 0
	}
	return uint64(max(0, x.keyspace.Bytes()))
}

// The table marks the commands that a full server refuses, as Redis marks them. A command that may
// renew a lease is checked when it runs: SIMBA.ACQUIRE by the engine (simba.AcquireRequest.Full),
// SET and similar commands by keyTx.mayGrow.

// mayGrow reports whether a full server refuses e on this connection, whatever it would do.
//
// Inside MULTI that is nearly everything, as in Redis: to queue takes memory. GUARD, RELEASE, DEL
// and their kin are queued all the same. What may renew or begin is not, ACQUIRE and SET: only when
// it runs it would be known which.
func (c *client) mayGrow(e *entry) bool {
	switch {
	case c.tx == nil:
		return e.has(denyoom) && !e.has(renewing)
	case e.has(immediate):
		return e.full == "exec" && c.tx.grows
	}
	return !e.has(write) || e.has(denyoom)
}

// mayGrow reports whether a full server refuses e with these arguments in the transaction: unless
// it gives a lock key the value that it has, which renews the tenure.
func (t *keyTx) mayGrow(e *entry, args [][]byte) bool {
	if !e.has(denyoom) || !e.has(renewing) {
		return e.has(denyoom)
	}
	l, err := t.str(parseKey(args[1]))
	return err != nil || !l.Exists() || l.Owner != string(e.actor.ids(args)[0])
}
