package commands

import (
	"context"
	"log/slog"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// memoryLimit is maxmemory: it knows whether there is memory for more. The zero memoryLimit has none.
//
// What is compared is used_memory without garbage (footprint.kept), so that a server is never full of
// what nobody needs any more. How much of the heap is garbage only the collector can tell, and
// left to itself it runs when the heap has doubled, or not for minutes where nothing is done:
// too late to refuse anything, too late to serve again. So the limit has it run
//
//   - when an eighth of the limit has been allocated since, which may be garbage or not;
//   - before anything is refused;
//   - every second while it is full, since what is given up must be seen.
//
// All of that only while used_memory is above the limit, and for no more than a twentieth of the time. What is kept can therefore be an
// eighth above it, or what is allocated in that time. Go's own soft limit (debug.SetMemoryLimit) would do the first without this code, but
// not the second; and near the limit it collects without a pause, for up to half of the
// processors' time, just when owners have to renew.
type memoryLimit struct {
	// full says that what grows is refused. It is all that a command looks at.
	full  atomic.Bool
	bytes atomic.Uint64 // 0 = no limit

	log     *slog.Logger
	read    func() footprint
	collect func()

	life  sync.Mutex // held by set; taken before mu
	end   func()     // stops the goroutine and waits for it; nil = there is none
	mu    sync.Mutex // held by a look
	rest  time.Time  // no collection before it: they take no more than a share of the time
	again time.Time  // when a full server collects again, at the earliest
}

// footprint is how much memory the process uses, in bytes. Both are of Go's heap, the goroutines'
// stacks and the runtime's own; not of what is free or was given back, nor of the program's text.
type footprint struct {
	used uint64 // used_memory of INFO
	// kept is used without garbage: without what the collector did not mark when it ran last, and
	// without all that was allocated since.
	kept uint64
}

const (
	memoryPeriod = 20 * time.Millisecond // between two looks
	minSlack     = 4 << 20               // below it, collections would be all that the server does

	fullPeriod = time.Second // a full server that waits for memory to be given up collects so often
	share      = 20          // after a collection there is none for so many times as long as it took
)

// slack is how much garbage there may be above a limit.
func slack(limit uint64) uint64 { return max(limit/8, minSlack) }

// init makes it use the process' memory.
func (l *memoryLimit) init(log *slog.Logger) {
	l.log, l.read, l.collect = log, readFootprint, runtime.GC
}

// set changes the limit; 0 = none. It has taken effect when set returns.
func (l *memoryLimit) set(limit uint64) {
	l.life.Lock()
	defer l.life.Unlock()
	l.bytes.Store(limit)
	if limit == 0 {
		l.stop()
	}
	l.mu.Lock()
	l.rest = time.Time{} // who sets it wants to know
	l.mu.Unlock()
	l.look()
	if limit == 0 || l.end != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { l.watch(ctx) })
	l.end = func() { cancel(); watching.Wait() }
}

// close ends the goroutine. The limit stays what it is, but nobody looks any more.
func (l *memoryLimit) close() {
	l.life.Lock()
	defer l.life.Unlock()
	l.stop()
}

func (l *memoryLimit) stop() {
	if l.end != nil {
		l.end()
		l.end = nil
	}
}

func (l *memoryLimit) watch(ctx context.Context) {
	tick := time.NewTicker(memoryPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.look()
		}
	}
}

// look finds out whether the limit is reached, after a collection if that needs one.
func (l *memoryLimit) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.bytes.Load()
	if limit == 0 {
		l.tell(false, l.read(), 0)
		return
	}
	u := l.read()
	if u.used > limit && l.shouldCollect(u, limit) {
		began := time.Now()
		l.collect()
		now := time.Now()
		l.rest = now.Add(share * now.Sub(began))
		l.again = now.Add(fullPeriod)
		u = l.read()
	}
	l.tell(u.kept > limit, u, limit)
}

func (l *memoryLimit) shouldCollect(u footprint, limit uint64) bool {
	switch now := time.Now(); {
	case now.Before(l.rest):
		return false
	case u.used-u.kept > slack(limit):
		return true
	case l.full.Load():
		return !now.Before(l.again)
	}
	return u.kept > limit // some of it may have been given up since
}

// tell lets the commands know, and the log if it is new.
func (l *memoryLimit) tell(full bool, u footprint, limit uint64) {
	if l.full.Swap(full) == full {
		return
	}
	if full {
		l.log.Warn("used memory is above maxmemory: what takes more is refused", "used", u.kept, "maxmemory", limit)
	} else {
		l.log.Info("used memory is no longer above maxmemory: nothing is refused", "used", u.kept, "maxmemory", limit)
	}
}

// SetMaxMemory limits the memory that the process may use, in bytes; 0 = no limit. Above it, what
// takes more is refused by simba.ErrOutOfMemory. It has taken effect when it returns, after a collection of
// garbage if that is above the limit. Cached scripts may take an eighth of it. Who sets a limit has to Close the Commands.
func (x *Commands) SetMaxMemory(bytes uint64) {
	scripts := bytes / 8 // or they would fill it for good
	if bytes == 0 {
		scripts = math.MaxInt
	}
	x.scripting.runner.LimitCache(int(min(scripts, math.MaxInt)))
	x.memory.set(bytes)
}

// What a full server refuses. Everything is marked in the table as Redis marks it; a command that
// may renew is judged when it runs, since then it is known: SIMBA.ACQUIRE by the engine
// (simba.AcquireRequest.Full), SET and its kin by keyTx.mayGrow.

// mayGrow reports whether a full server refuses e on this connection, whatever it would do.
//
// Inside MULTI that is nearly everything, as in Redis: to queue takes memory. GUARD, RELEASE, DEL and their kin are
// queued all the same. What may renew or begin is not, ACQUIRE and SET: only when it runs it would be known which.
func (c *client) mayGrow(e *entry) bool {
	switch {
	case c.tx == nil:
		return e.has(denyoom) && !e.has(renewing)
	case e.has(immediate):
		return e.full == "exec" && c.tx.grows
	}
	return !e.has(write) || e.has(denyoom)
}

// mayGrow reports whether a full server refuses e with these arguments in the transaction: unless it gives
// a lock key the value that it has, which renews the tenure.
func (t *keyTx) mayGrow(e *entry, args [][]byte) bool {
	if !e.has(denyoom) || !e.has(renewing) {
		return e.has(denyoom)
	}
	l, err := t.str(parseKey(args[1]))
	return err != nil || !l.Exists() || l.Owner != string(e.actor.ids(args)[0])
}
