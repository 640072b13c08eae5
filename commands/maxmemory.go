package commands

import (
	"log/slog"
	"math"
	"sync/atomic"
)

// memoryLimit compares the memory of the engine's mutexes with maxmemory. The zero memoryLimit has
// no limit.
//
// The server checks at the start of a command, a transaction or a script. So concurrent commands
// can together exceed the limit.
type memoryLimit struct {
	bytes  atomic.Uint64 // 0 = no limit
	used   func() uint64
	log    *slog.Logger
	logged atomic.Bool // the last log line was the warning that the limit is exceeded
}

// exceeded reports whether commands that take memory are refused.
func (l *memoryLimit) exceeded() bool {
	limit := l.bytes.Load()
	if limit == 0 {
		return false
	}
	used := l.used()
	switch logged := l.logged.Load(); {
	case !logged && used > limit:
		if l.logged.CompareAndSwap(false, true) {
			l.log.Warn("used memory is above maxmemory: refusing commands that take more", "used", used, "maxmemory", limit)
		}
	case logged && used <= limit-limit/8: // an eighth below the limit, to log few lines near it
		l.clear(used, limit)
	}
	return used > limit
}

// clear logs that the server accepts all commands again. It does nothing if the warning was not
// logged.
func (l *memoryLimit) clear(used, limit uint64) {
	if l.logged.CompareAndSwap(true, false) {
		l.log.Info("used memory is no longer above maxmemory: accepting all commands", "used", used, "maxmemory", limit)
	}
}

// set changes the limit; 0 = no limit.
func (l *memoryLimit) set(limit uint64) {
	l.bytes.Store(limit)
	if limit == 0 {
		l.clear(l.used(), 0)
		return
	}
	l.exceeded() // logs at once if the new limit is exceeded
}

// SetMaxMemory limits the memory of the engine's mutexes, in bytes; 0 = no limit. Above the limit,
// requests that take more memory get simba.ErrOutOfMemory. The waiters of one mutex may take half
// of the limit, and cached scripts an eighth. Only an engine that is a simba.Keyspace counts its
// memory.
func (x *Commands) SetMaxMemory(bytes uint64) {
	scripts := bytes / 8
	if bytes == 0 {
		scripts = math.MaxInt
	}
	x.scripting.runner.LimitCache(int(min(scripts, math.MaxInt)))
	if x.keyspace != nil {
		x.keyspace.LimitQueues(int64(min(bytes/2, math.MaxInt64)))
	}
	x.memory.set(bytes)
}

// dataset returns the memory of the engine's mutexes, in bytes.
func (x *Commands) dataset() uint64 {
	if x.keyspace == nil {
		return 0
	}
	return uint64(max(0, x.keyspace.Bytes()))
}

// A server above maxmemory is full. It refuses the commands that have the flag denyoom in the
// table, as Redis does. There is an exception: a command that can be a renewal runs, and fails only
// if it is none and needs memory. The engine decides this for SIMBA.ACQUIRE
// (simba.AcquireRequest.Full), and keyTx.mayGrow decides it for SET and similar commands.

// mayGrow reports whether a full server refuses e on this connection, whatever its arguments are.
//
// Inside MULTI a full server refuses nearly everything, as Redis does, because queued commands take
// memory. It queues only writes that need no memory, such as GUARD, RELEASE and DEL. It does not
// queue ACQUIRE and SET, which may renew a lease, but may also need memory.
func (c *client) mayGrow(e *entry) bool {
	switch {
	case c.tx == nil:
		return e.has(denyoom) && !e.has(renewing)
	case e.has(immediate):
		return e.full == "exec" && c.tx.grows
	}
	return !e.has(write) || e.has(denyoom)
}

// mayGrow reports whether a full server refuses e with these arguments. A command that sets a lock
// key to its present value is allowed, because it renews the lease.
func (t *keyTx) mayGrow(e *entry, args [][]byte) bool {
	if !e.has(denyoom) || !e.has(renewing) {
		return e.has(denyoom)
	}
	l, err := t.str(parseKey(args[1]))
	return err != nil || !l.Exists() || l.Owner != string(e.actor.ids(args)[0])
}
