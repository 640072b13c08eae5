package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

// gate is a Journal whose fsync waits while the gate is closed.
type gate struct {
	mu       sync.Mutex
	opened   *sync.Cond
	open     bool
	appended simba.Seq
	held     simba.Seq // the first change that waits for the fsync; 0 = none
	strict   bool      // Append requires an fsync for changes of a queue too
	changes  []simba.Change
}

func newGate() *gate {
	g := &gate{}
	g.opened = sync.NewCond(&g.mu)
	return g
}

func (g *gate) AppendAll(changes []simba.Change) (mustSync bool) {
	for _, ch := range changes {
		mustSync = g.Append(ch) || mustSync
	}
	return mustSync
}

func (g *gate) Append(ch simba.Change) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch.Events = slices.Clone(ch.Events)
	g.changes = append(g.changes, ch)
	g.appended = ch.Seq
	if !g.open && g.held == 0 && (ch.Kind != simba.ChangeNone || ch.Token != 0 || g.strict) {
		g.held = ch.Seq
		return true
	}
	return false
}

func (g *gate) Commit(seq simba.Seq) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.held != 0 && g.held <= seq {
		g.opened.Wait()
	}
	return nil
}

func (g *gate) Committed() simba.Seq {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held != 0 {
		return g.held - 1
	}
	return g.appended
}

func (g *gate) set(open bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = open
	if open {
		g.held = 0
		g.opened.Broadcast()
	}
}

func TestAStoredLeaseSaysWhenItsTenureBeganAndWhetherAConnectionIsBoundToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		g.set(true)
		w := newWorldOn(t, g, Recovery{Leases: func(yield func(simba.Lease, error) bool) {
			yield(simba.Lease{Mutex: "old", Owner: "a", Token: 7, Acquired: 1000, AcquiredAt: 50, StartedAt: 40, TTL: time.Hour, Session: true}, nil)
		}, Token: 7})
		start := time.Now().UnixMilli()
		last := func() simba.Lease { return g.changes[len(g.changes)-1].Lease }
		for _, step := range []struct {
			name    string
			do      func()
			started int64 // milliseconds after start
			session bool
		}{
			{"a grant", func() { w.ask(simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: time.Hour, Session: 3}) }, 1000, true},
			{"a guard", func() { w.guard("m", "a", time.Hour, 0, 0) }, 1000, true},
			{"a renewal that unbinds", func() { w.ask(simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: time.Hour}) }, 1000, false},
			{"SET KEEPTTL, another tenure", func() { w.commit(func(tx simba.Tx) { tx.Take("m", simba.Lock{Owner: "b", TTL: simba.KeepTTL}) }) }, 4000, false},
			{"a recovered lease", func() { w.guard("old", "a", time.Hour, 0, 0) }, 40 - start, false},
		} {
			time.Sleep(sec)
			step.do()
			if l := last(); l.StartedAt != start+step.started || l.Session != step.session {
				t.Errorf("%s: the tenure began at %d ms, bound to a session: %v; want %d ms and %v", step.name, l.StartedAt-start, l.Session, step.started, step.session)
			}
		}
	})
}

// commits begins Commit(seq). The returned function waits until all goroutines are idle. Then it
// reports whether Commit has returned.
func commits(e *Engine, seq simba.Seq) func() bool {
	done := make(chan struct{})
	go func() {
		_ = e.Commit(seq)
		close(done)
	}()
	return func() bool {
		synctest.Wait()
		select {
		case <-done:
			return true
		default:
			return false
		}
	}
}

func TestRepliesWaitForTheirMutexAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		w := newWorldOn(t, g, Recovery{})
		ctx := t.Context()
		g.set(true)
		o := w.acquire("m", "a", time.Hour, 0)
		g.set(false)
		for i := range 20 << shardBits { // in every shard
			if _, _, err := w.e.Acquire(ctx, simba.AcquireRequest{Mutex: fmt.Sprint(i), Contender: "a", TTL: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
		replies := func() map[string]func() bool {
			views := map[string]func() bool{}
			_, seq, _ := w.e.Owner(ctx, "m")
			views["OWNER"] = commits(w.e, seq)
			_, seq, _ = w.e.Check(ctx, "m", o.Token)
			views["CHECK"] = commits(w.e, seq)
			busy, _, _ := w.e.Acquire(ctx, simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: sec, NoQueue: true})
			views["the reply to b"] = commits(w.e, busy.Seq)
			tx := w.e.beginTx()
			tx.Lock("m")
			seq, _ = tx.commit()
			tx.end()
			views["GET"] = commits(w.e, seq)
			return views
		}
		for name, committed := range replies() {
			if !committed() {
				t.Errorf("the commit of %s waits for a change of another mutex", name)
			}
		}
		if _, _, err := w.e.Release(ctx, simba.ReleaseRequest{Mutex: "m", Contender: "a"}); err != nil {
			t.Fatal(err)
		}
		for name, committed := range replies() {
			if committed() {
				t.Errorf("%s shows the release before it is durable", name)
			}
		}
		g.set(true)
	})
}

// upTo lets the gate make durable only the changes up to seq.
func (g *gate) upTo(seq simba.Seq) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = seq + 1
	g.opened.Broadcast()
}

func TestAWaiterOfAnEndedLeaseWaitsUntilTheNextIsDurable(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		w.acquire("m", "a", time.Hour, 0)
		b := &blocked{w: w, woken: make(chan struct{})}
		o, ticket, err := w.e.Acquire(w.t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: sec, Waiter: b})
		w.mustCommit(o.Seq, err)
		g.set(false)
		_, first, err := w.e.Release(w.t.Context(), simba.ReleaseRequest{Mutex: "m", Contender: "a"})
		if err != nil {
			w.t.Fatal(err)
		}
		released := commits(w.e, first)
		time.Sleep(time.Minute) // the disk hangs for longer than the lease lasts
		if s := w.e.Stats(); s.Acquired != 2 || s.Expired != 1 || s.Blocked != 1 {
			w.t.Errorf("b was granted a second lease before its first was durable: %+v", s)
		}
		if released() || b.isWoken() {
			w.t.Fatal("before the fsync, the commit of Release returned, or b was woken")
		}
		g.upTo(first)
		if !released() || !b.isWoken() {
			w.t.Fatal("after the fsync, the commit of Release does not return, or b was not woken")
		}
		o, err = ticket.End(simba.EndWoken)
		if err != nil || o.Status != simba.StatusWaiting || o.Owner != "b" {
			w.t.Fatalf("End after the end of the lease: %+v, %v; want waiting with the owner b", o, err)
		}
		time.Sleep(2 * ms)
		// End must not show the next lease before that lease is durable.
		if o, err := ticket.End(simba.EndWoken); err != nil || o.Status != simba.StatusWaiting {
			w.t.Fatalf("End before the next lease is durable: %+v, %v; want waiting", o, err)
		}
		g.set(true)
		w.mustCommit(o.Seq, nil)
		o, err = ticket.End(simba.EndWoken)
		if w.mustCommit(o.Seq, err); o.Status != simba.StatusAcquired || o.TTL != sec-2*ms {
			w.t.Errorf("End after the next lease is durable: %+v; want acquired with %v left", o, sec-2*ms)
		}
	})
}

func TestTenureEndedAgainstItsOwnersWillIsForcedToDisk(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		last := func() simba.Change {
			g.mu.Lock()
			defer g.mu.Unlock()
			return g.changes[len(g.changes)-1]
		}
		w.acquire("m", "a", sec, 0)
		if ch := last(); ch.Forced || ch.Kind != simba.ChangePut || ch.Lease.Owner != "a" {
			w.t.Errorf("change of the grant: %+v; want a put with the owner a, not forced", ch)
		}
		time.Sleep(sec)
		synctest.Wait()
		if ch := last(); !ch.Forced || ch.Kind != simba.ChangeDelete {
			w.t.Errorf("change of the expiry: %+v; want a forced delete", ch)
		}
		w.ask(simba.AcquireRequest{Mutex: "m", Contender: "a", TTL: time.Hour, Session: 3})
		b := w.block("m", "b", time.Hour, 0)
		w.askRelease(simba.ReleaseRequest{Mutex: "m", Contender: "a", Session: 3})
		if ch := last(); !ch.Forced || ch.Kind != simba.ChangePut || ch.Lease.Owner != "b" {
			w.t.Errorf("change of the session's end with handoff: %+v; want a forced put with the owner b", ch)
		}
		b.granted()
		_, seq, err := w.e.Break(w.t.Context(), "m", "")
		w.mustCommit(seq, err)
		if ch := last(); !ch.Forced || ch.Kind != simba.ChangeDelete {
			w.t.Errorf("change of the break: %+v; want a forced delete", ch)
		}
		w.acquire("m", "a", sec, 0)
		w.release("m", "a")
		if ch := last(); ch.Forced || ch.Kind != simba.ChangeDelete {
			w.t.Errorf("change of the owner's release: %+v; want a delete, not forced", ch)
		}
	})
}

// A journal may require an fsync for the change of a queue too. Then the request that made the
// change commits it.
func TestAQueuedRequestCommitsTheChangeThatMustBeSynced(t *testing.T) {
	inBubbleOnDisk(t, func(w *world, g *gate) {
		w.acquire("m", "a", time.Hour, 0)
		g.strict = true
		g.set(false)
		o, _, _ := w.e.Acquire(w.t.Context(), simba.AcquireRequest{Mutex: "m", Contender: "b", TTL: time.Hour})
		queued := commits(w.e, o.Seq)
		if queued() {
			w.t.Error("the commit of the request returned before the fsync")
		}
		g.set(true)
		if !queued() {
			w.t.Error("the commit of the request does not return after the fsync")
		}
	})
}

func leases(ls ...simba.Lease) func(func(simba.Lease, error) bool) {
	return func(yield func(simba.Lease, error) bool) {
		for _, l := range ls {
			if !yield(l, nil) {
				return
			}
		}
	}
}

func TestRecoveredLeaseKeepsItsRemainingTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Token: 9, Leases: leases(
			simba.Lease{Mutex: "m", Owner: "a", Token: 7, Acquired: 1000 - simba.Instant(4*sec), AcquiredAt: 5, TTL: 8 * sec, Transition: 2 * sec},
			simba.Lease{Mutex: "ended", Owner: "x", Token: 8, Acquired: 1000 - simba.Instant(11*sec), TTL: 8 * sec, Transition: 2 * sec},
		)})
		synctest.Wait()
		if got := w.owner("ended"); got.Owner != "" {
			t.Errorf("owner after a lease that ended while the server was down: %+v; want none", got)
		}
		if got := w.history("ended"); !slices.Equal(got, []string{"expired x"}) {
			t.Errorf("history of the ended lease: %q, want its expiry", got)
		}
		got := w.owner("m")
		if got.Owner != "a" || got.Token != 7 || got.TTL != 4*sec || got.Transition != 6*sec {
			t.Errorf("recovered lease: %+v; want a with token 7, 4 s and 6 s left", got)
		}
		b := w.block("m", "b", sec, 0)
		start := time.Now()
		<-b.woken
		if took := time.Since(start); took != 6*sec {
			t.Errorf("the recovered lease ended after %v, want 6 s", took)
		}
		if o := b.granted(); o.Token <= 9 {
			t.Errorf("b was granted token %d, want more than the recovered 9", o.Token)
		}
		w.audit()
	})
}

func TestReleaseDuringTheRecoveryDelayAlsoLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, Recovery{Delay: 30 * sec, Leases: leases(
			simba.Lease{Mutex: "m", Owner: "a", Token: 7, Acquired: 1000, TTL: time.Hour},
		)})
		w.acquire("m", "a", sec, 0)
		w.acquire("m", "b", sec, 0)
		if !w.release("m", "a") {
			t.Error("RELEASE of the owner a returned false, want true")
		}
		if q := w.queue("m"); !slices.Equal(q, []string{"b"}) {
			t.Errorf("queue %v, want b alone", q)
		}
		w.audit()
	})
}
