package commands

import (
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// This file has the waits that block no connection: SIMBA.ACQUIRE ... WAIT ms VIA waiter REQUEST n.
// SIMBA.NEXT waiter returns their outcomes, on the connection to which it has bound the waiter.
//
//	ACQUIRE, any connection ─► viaWait ─► simba.Backend
//	                              │ ▲ Wake, timeout, cancel, new rules, end of the connection
//	                              ▼ │
//	               waiter.ready ◄ viaWait.end, a goroutine that runs while a ticket ends
//	                    │
//	                    ▼
//	NEXT, the waiter's connection ─► socket
//
// A ticket ends on a goroutine of its own, because a store may take long, or the disk. So the end
// of a wait delays neither the waits for other mutexes nor the engine, which calls Wake.
//
// Each wait ends in one of these ways: its outcome is written to the socket as a whole, RELEASE
// cancels it, or the connection ends. In the last case endWaiter abandons a grant that was not
// sent.
//
// No backend is called under waiter.mu, and of other locks only that of resp.Wait is taken under it.

const (
	minWaiterName = 16
	maxWaiterName = 64
	// maxWaits is how many waits a waiter may have. All waiters together may have maxWaitsPerClient
	// times maxclients.
	maxWaits          = 10_000
	maxWaitsPerClient = 10
	// maxBrought is how many tenures a waiter remembers for RELEASE ... REQUEST.
	maxBrought = 100
)

const (
	errOneWaiter  replyError = "ERR a connection has one waiter, and a waiter has one connection"
	errOldRequest replyError = "ERR REQUEST names an earlier request: each request needs a new number"
)

// waiter collects the outcomes of waits for one connection.
type waiter struct {
	c      *client
	name   string
	ending sync.WaitGroup // the goroutines of viaWait.end

	mu      sync.Mutex          // protects the rest, and parts of each viaWait
	over    sync.Cond           // a wait, or tenure.ending, has ended; uses mu
	waits   map[uint64]*viaWait // by number, until the outcome is sent or the wait is canceled
	ready   []*viaWait          // those with an outcome to send, in order
	next    *resp.Wait          // of the last SIMBA.NEXT
	asking  bool                // a SIMBA.NEXT is in progress
	asked   time.Time           // when the last one ended
	silence *time.Timer         // calls silent
	gone    bool                // the connection has ended
	brought []*tenure           // of the last requests that have brought one
}

// tenure is what RELEASE ... REQUEST needs of a request to end the tenure that it has brought. Only
// the contender's last request counts, because it may have renewed the lease of an earlier tenure.
type tenure struct {
	waiter *waiter
	n      uint64 // of the request
	of     uint64 // tenureHash

	// waiter.mu protects the rest.
	token  uint64 // 0 = none
	ending int    // how many RELEASEs are ending the tenure
}

var tenureSeed = maphash.MakeSeed()

func tenureHash(mutex, contender string) uint64 {
	return maphash.Comparable(tenureSeed, [2]string{mutex, contender})
}

// viaWait is one wait. It is the Waiter of its ticket.
type viaWait struct {
	waiter           *waiter
	n                uint64
	tenure           *tenure
	mutex, contender string
	lease, started   time.Duration // ttl + transition; since the server's start

	// waiter.mu protects the rest. The fields from over on do not change once they are set.
	ticket  simba.Ticket    // nil = the backend has not replied yet
	timer   *time.Timer     // ends the wait at its limit; nil = none
	why     simba.EndReason // why end calls the ticket; the first reason other than EndWoken counts
	refusal *denial         // why the user may not wait any more; nil = may wait
	woken   bool            // end must call the ticket again
	busy    bool            // end runs
	over    bool            // the wait has ended with the outcome below
	out     simba.Outcome
	err     error     // the outcome if it is an error
	at      time.Time // when the windows of out began to run
}

// bindWaiter returns the waiter of a name. The first call binds the waiter to the connection.
func (c *client) bindWaiter(name string) (*waiter, error) {
	w := c.waiter.Load()
	if w == nil {
		w = &waiter{c: c, name: name, waits: make(map[uint64]*viaWait)}
		w.over.L = &w.mu
		if _, taken := c.x.waiters.LoadOrStore(name, w); taken {
			return nil, errOneWaiter
		}
		c.waiter.Store(w)
	}
	if w.name != name {
		return nil, errOneWaiter
	}
	return w, nil
}

// findWaiter returns the waiter of a name if it belongs to this user; nil = there is none.
func (c *client) findWaiter(name string) *waiter {
	if w, _ := c.x.waiters.Load(name); w != nil && w.(*waiter).c.account.Load() == c.account.Load() {
		return w.(*waiter)
	}
	return nil
}

// endWaiter ends the waits of the connection like those of blocked clients whose connection has
// closed. It hands off what the client was granted and did not receive.
func (c *client) endWaiter() {
	w := c.waiter.Swap(nil)
	if w == nil {
		return
	}
	c.x.waiters.Delete(w.name)
	w.mu.Lock()
	w.gone = true
	if w.silence != nil {
		w.silence.Stop()
	}
	w.mu.Unlock()
	for _, v := range w.all() {
		v.interrupt(simba.EndGone, nil)
	}
	w.ending.Wait()
	unsent := w.take(nil)
	for _, v := range unsent {
		if v.granted() {
			w.ending.Go(func() { c.x.abandon(v.ticket, v.mutex, v.contender, v.out.Token) })
		}
	}
	w.ending.Wait()
	w.sent(unsent, true)
	for _, t := range w.brought {
		c.x.tenures.CompareAndDelete(t.of, t)
	}
}

// asks notes the begin and the end of a SIMBA.NEXT.
func (w *waiter) asks(begins bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asking, w.asked = begins, time.Now()
	if w.silence == nil && !w.gone {
		w.silence = time.AfterFunc(maxSilence, w.silent)
	}
}

// silent closes the connection if it has waits and has sent no SIMBA.NEXT for maxSilence. If not, it
// looks again later.
func (w *waiter) silent() {
	w.mu.Lock()
	defer w.mu.Unlock()
	left := maxSilence - time.Since(w.asked)
	switch {
	case w.gone:
	case left <= 0 && !w.asking && len(w.waits) != 0:
		w.c.conn.Close()
	case left <= 0:
		w.silence.Reset(maxSilence)
	default:
		w.silence.Reset(left)
	}
}

// all returns the waits. The caller then locks the mutex for each, so that it never blocks Wake.
func (w *waiter) all() []*viaWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.waits))
}

// enter adds a wait for a request, before the request is sent to the backend. The wait is nil if the
// user has no such waiter on this server. If full is true, the request may not wait.
func (c *client) enter(a *acquisition) (v *viaWait, full bool, err error) {
	w := c.findWaiter(a.via.waiter)
	if w == nil {
		return nil, false, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waits[a.via.n] != nil || slices.ContainsFunc(w.brought, func(t *tenure) bool { return t.n == a.via.n }) {
		return nil, false, errOldRequest
	}
	full = len(w.waits) >= maxWaits || c.x.store.waits.Load() >= maxWaitsPerClient*int64(c.x.server.MaxClients())
	v = &viaWait{waiter: w, n: a.via.n, mutex: a.Mutex, contender: a.Contender, lease: a.TTL + a.Transition, started: c.call.started}
	v.tenure = &tenure{waiter: w, n: v.n, of: tenureHash(v.mutex, v.contender)}
	w.waits[v.n] = v
	c.x.store.waits.Add(1)
	return v, full, nil
}

// start begins the wait after the backend has returned its ticket. It returns false if the
// waiter's connection has ended meanwhile. Then the caller ends the ticket.
func (v *viaWait) start(ticket simba.Ticket, limit time.Duration) bool {
	w := v.waiter
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return false
	}
	v.ticket = ticket
	if limit > 0 {
		v.timer = time.AfterFunc(limit+v.started-w.c.x.age(), func() { v.interrupt(simba.EndTimeout, nil) })
	}
	if v.woken {
		v.interruptLocked(v.why)
	}
	return true
}

// Wake implements simba.Waiter.
func (v *viaWait) Wake() { v.interrupt(simba.EndWoken, nil) }

func (v *viaWait) interrupt(why simba.EndReason, refusal *denial) {
	v.waiter.mu.Lock()
	defer v.waiter.mu.Unlock()
	if refusal != nil {
		v.refusal = refusal
	}
	v.interruptLocked(why)
}

// interruptLocked makes end call the ticket. The caller holds waiter.mu.
func (v *viaWait) interruptLocked(why simba.EndReason) {
	v.woken = true
	if v.why == simba.EndWoken || why == simba.EndGone {
		v.why = why
	}
	if v.ticket != nil && !v.busy && !v.over {
		v.busy = true
		v.waiter.ending.Go(v.end)
	}
}

// end calls the ticket until the wait is over, or goes on and nothing has interrupted it again.
func (v *viaWait) end() {
	w := v.waiter
	for again := true; again; {
		w.mu.Lock()
		why, refusal := v.why, v.refusal
		v.woken = false
		w.mu.Unlock()
		out, err := v.ticket.End(why)
		at := time.Now()
		if failed := w.c.x.store.backend.Commit(out.Seq); failed != nil {
			w.c.conn.Close() // no outcome may be sent
			err = failed
		}
		if err != nil || out.Status != simba.StatusWaiting {
			v.finish(out, err, refusal, at)
			return
		}
		w.mu.Lock()
		v.busy = v.woken
		again = v.busy
		w.mu.Unlock()
	}
}

// finish ends the wait. If it has brought no tenure, refusal is the outcome; nil = out is.
func (v *viaWait) finish(out simba.Outcome, err error, refusal *denial, at time.Time) {
	w, x := v.waiter, v.waiter.c.x
	switch owns := out.Status == simba.StatusAcquired || out.Status == simba.StatusRenewed; {
	case err != nil:
	case owns:
		var seq simba.Seq
		if seq, err = x.vouchAfter(context.Background(), x.store.backend, v.mutex, v.contender, v.lease, &out); seq != 0 {
			_ = x.store.backend.Commit(seq) // the client learns of the refusal anyway
		}
	case refusal != nil:
		err = refusal
		x.observers.denied(userName(w.c.conn), w.c.conn.RemoteAddr(), refusal, "toplevel")
	}
	x.countAcquire(out.Status, err, true, v.started)
	if err != nil {
		x.observers.stats.errors.add(err)
		x.store.faults.met(err)
	}

	w.mu.Lock()
	defer w.mu.Unlock()
	v.busy, v.at = false, at
	v.settle(out, err)
	if v.timer != nil {
		v.timer.Stop()
	}
	w.ready = append(w.ready, v)
	if w.next != nil {
		w.next.Wake()
	}
}

// withdraw forgets a wait whose request got its reply at once, or failed.
func (v *viaWait) withdraw(out simba.Outcome) {
	w := v.waiter
	w.mu.Lock()
	defer w.mu.Unlock()
	v.settle(out, nil)
	w.forgetLocked(v)
}

// settle stores the outcome. The caller holds waiter.mu.
func (v *viaWait) settle(out simba.Outcome, err error) {
	v.over, v.out, v.err = true, out, err
	if v.granted() {
		v.tenure.token = out.Token
	}
	v.waiter.over.Broadcast()
}

func (v *viaWait) granted() bool { return v.err == nil && v.out.Status == simba.StatusAcquired }

// cancel ends the wait of a request, or the tenure that the request has brought. ended is true if
// there was such a tenure.
func (c *client) cancel(via viaRequest, mutex, contender string) (ended bool, seq simba.Seq, err error) {
	w := c.findWaiter(via.waiter)
	if w == nil {
		return false, 0, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if v := w.waits[via.n]; v != nil && v.mutex == mutex && v.contender == contender {
		for !v.over {
			v.interruptLocked(simba.EndLeft)
			w.over.Wait()
		}
		if i := slices.Index(w.ready, v); i >= 0 { // otherwise NEXT sends or has sent the outcome
			w.ready = slices.Delete(w.ready, i, i+1)
			w.forgetLocked(v)
			if v.granted() { // Abandon ends no tenure that a later request has renewed
				w.mu.Unlock()
				seq, err = v.ticket.Abandon()
				w.mu.Lock()
				return err == nil, seq, err
			}
			if lost := (*simba.UnavailableError)(nil); errors.As(v.err, &lost) {
				return false, 0, lost // the store may have granted the mutex
			}
		}
	}
	last, _ := c.x.tenures.Load(tenureHash(mutex, contender))
	t, _ := last.(*tenure)
	if t == nil || t.waiter != w || t.n != via.n || t.token == 0 {
		return false, 0, nil
	}
	t.ending++
	w.mu.Unlock()
	ended, seq, err = c.backend().Release(c.conn.Context(), simba.ReleaseRequest{Mutex: mutex, Contender: contender, Token: t.token})
	w.mu.Lock()
	t.ending--
	w.over.Broadcast()
	return ended, seq, err
}

// supersede makes t the tenure of the contender's last request; nil = the request is not via a
// waiter. It waits until no RELEASE is ending the tenure of an earlier request.
func (x *Commands) supersede(of uint64, t *tenure) {
	last, found := any(nil), false
	if t == nil {
		last, found = x.tenures.LoadAndDelete(of)
	} else {
		last, found = x.tenures.Swap(of, t)
	}
	if !found {
		return
	}
	old := last.(*tenure)
	old.waiter.mu.Lock()
	defer old.waiter.mu.Unlock()
	for old.ending > 0 {
		old.waiter.over.Wait()
	}
}

// take returns the waits whose outcomes SIMBA.NEXT sends now. The caller must call sent. The next
// outcome after them wakes next; nil = nothing is woken.
func (w *waiter) take(next *resp.Wait) []*viaWait {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.ready
	w.ready, w.next = nil, next
	return list
}

// sent forgets the waits whose outcomes were written to the socket. If they were not wholly
// written, it puts them back for endWaiter.
func (w *waiter) sent(list []*viaWait, written bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !written {
		w.ready = append(list, w.ready...)
		return
	}
	for _, v := range list {
		w.forgetLocked(v)
	}
}

// forgetLocked forgets a wait that is over. It remembers the last tenures for cancel. The caller
// holds w.mu.
func (w *waiter) forgetLocked(v *viaWait) {
	w.c.x.store.waits.Add(-1)
	delete(w.waits, v.n)
	old := v.tenure
	if old.token != 0 && !w.gone {
		if w.brought = append(w.brought, old); len(w.brought) <= maxBrought {
			return
		}
		old, w.brought = w.brought[0], w.brought[1:]
	}
	w.c.x.tenures.CompareAndDelete(old.of, old)
}

// judge ends the wait if the user's rules no longer allow it.
func (v *viaWait) judge() {
	c := v.waiter.c
	d := c.x.mayNot(c.user(), "simba.acquire", v.mutex, v.contender)
	if d == nil {
		d = c.x.mayNot(c.user(), "simba.next", v.waiter.name)
	}
	if d != nil {
		v.interrupt(simba.EndLeft, d)
	}
}

// write writes the outcome as a record. A grant whose lease has ended meanwhile becomes a timeout.
func (v *viaWait) write(w *resp.Writer) {
	if v.err != nil {
		w.MapOf("request", int64(v.n), "mutex", v.mutex, "error", wireText(v.err))
		return
	}
	out := v.out
	if (out.Status == simba.StatusAcquired || out.Status == simba.StatusRenewed) && !age(&out, v.at) {
		out = simba.Outcome{Status: simba.StatusTimeout}
	}
	writeOutcome(w, &out, "request", int64(v.n), "mutex", v.mutex)
}
