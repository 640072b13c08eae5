package proxy

import (
	"context"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
)

// memory is the data that several memoryStores share. Its clock is not that of the servers.
type memory struct {
	mu     sync.Mutex // guards the fields below
	rows   map[string]*memoryRow
	stores []*memoryStore
	faults *faults                  // nil = no fault
	refuse []Fault                  // what Check returns
	locked map[string]chan struct{} // mutexes that another transaction has locked; closed at its end

	harm       error                    // what each step returns, if the store needs a repair
	loses      string                   // a mutex whose next reply is lost
	silent     bool                     // then the connection stays open
	losesUntil time.Duration            // how long after that reply the step takes effect
	slow       map[string]time.Duration // how late the reply to the next step of a kind arrives
	waiting    atomic.Int64             // steps that wait for a locked mutex

	// announce says that stores tell each other of changes. Otherwise they must poll.
	announce bool
}

type memoryRow struct {
	State
	owner bool // there is an owner, perhaps with an ended lease
}

func newMemory() *memory {
	return &memory{rows: make(map[string]*memoryRow), locked: make(map[string]chan struct{})}
}

const memoryClock = 40 * time.Second // ahead of the servers' clocks

func (d *memory) now() int64 { return time.Now().Add(memoryClock).UnixMilli() }

// memoryStore is the Store of one server.
type memoryStore struct {
	*memory
	hooks   Hooks
	watched map[string]bool
}

func (d *memory) store() Store {
	s := &memoryStore{memory: d, watched: make(map[string]bool)}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stores = append(d.stores, s)
	return s
}

func (s *memoryStore) Watch(mutex string)   { s.setWatched(mutex, true) }
func (s *memoryStore) Unwatch(mutex string) { s.setWatched(mutex, false) }
func (s *memoryStore) setWatched(mutex string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched[mutex] = on
}

var (
	errCutOff  = errors.New("the store is cut off")
	errDemoted = errors.New("the store is not the primary")
)

// faults makes steps fail. Each step draws what happens to it.
type faults struct {
	mu  sync.Mutex // guards rng
	rng *rand.Rand
	// rate is how many of 100 steps go wrong.
	rate int
	// until is the end of the present outage; all steps before it fail.
	until   time.Time
	demoted bool // the outage is that of a demoted primary, which answers
	silent  bool // no step of the outage takes effect
}

func (f *faults) n(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.rng.IntN(n)
}

// step runs a step on the data, and makes it fail as the faults say. answer is false if nobody gets
// the answer of the step.
func (s *memoryStore) step(ctx context.Context, mutex string, lock bool, do func(r *memoryRow, now int64, answer bool)) error {
	run := func(answer bool) {
		s.mu.Lock()
		r := s.rows[mutex]
		if r == nil {
			r = &memoryRow{}
		}
		before := r.State
		do(r, s.now(), answer)
		if r.Revision > 0 {
			s.rows[mutex] = r
		}
		changed := (before.Revision != r.Revision || r.TransitionAt < before.TransitionAt) && s.announce
		others := slices.Clone(s.stores)
		s.mu.Unlock()
		for _, other := range others {
			if changed && other != s {
				other.tell(mutex)
			}
		}
	}
	apply := func() { run(true) }
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	f, locked, harm := s.faults, s.locked[mutex], s.harm
	s.mu.Unlock()
	if harm != nil {
		return harm
	}
	if lock && locked != nil {
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		select {
		case <-locked:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(lockedStep):
			return NotDone{errors.New("lock wait timeout"), true}
		}
	}
	if f == nil {
		s.mu.Lock()
		lost := lock && mutex != "" && s.loses == mutex
		if lost {
			s.loses = ""
		}
		silent, until := s.silent, s.losesUntil
		s.mu.Unlock()
		if lost && until > 0 {
			time.AfterFunc(until, func() { run(false) })
			return errCutOff
		}
		apply()
		switch {
		case lost && silent:
			<-ctx.Done()
		case lost:
			return errCutOff
		}
		return ctx.Err()
	}
	end, _ := ctx.Deadline()
	wait := func(d time.Duration) bool {
		select {
		case <-ctx.Done():
			return false
		case <-time.After(d):
			return true
		}
	}
	// later applies the step between now and its Horizon.
	later := func() {
		left := time.Until(end) + memoryLate
		time.AfterFunc(time.Duration(f.n(int(left/time.Millisecond)+1))*time.Millisecond, func() { run(false) })
	}
	f.mu.Lock()
	away, demoted := time.Now().Before(f.until), f.demoted
	f.mu.Unlock()
	switch {
	case away && demoted:
		return errDemoted
	case away: // the step arrives after the outage, if that is before its deadline
		if arrives := time.Until(f.until); !f.silent && f.n(2) == 0 && time.Now().Add(arrives).Before(end) {
			time.AfterFunc(arrives, func() { run(false) })
		}
		wait(time.Hour)
		return ctx.Err()
	case !wait(time.Duration(f.n(3)) * time.Millisecond):
		return ctx.Err()
	case f.n(100) >= f.rate:
		apply()
		return nil
	}
	switch f.n(6) {
	case 0: // the request is lost
		return errCutOff
	case 1: // the reply is lost, and the connection breaks
		apply()
		return errCutOff
	case 2: // the reply does not arrive
		apply()
		wait(time.Hour)
		return ctx.Err()
	case 3: // the step takes effect late
		later()
		wait(time.Hour)
		return ctx.Err()
	case 4: // the network delivers the request twice
		apply()
		later()
		return nil
	}
	late := time.Duration(f.n(2500)) * time.Millisecond
	if f.n(2) == 0 { // the reply is late
		apply()
		wait(late)
		return ctx.Err()
	}
	if !wait(late) { // the request is late
		later()
		return ctx.Err()
	}
	apply()
	return nil
}

// memoryLate is how long after its deadline a step may still take effect.
const memoryLate = 1500 * time.Millisecond

func (s *memoryStore) tell(mutex string) {
	s.mu.Lock()
	f, watched := s.faults, s.watched[mutex]
	s.mu.Unlock()
	if watched && (f == nil || f.n(10) > 0) { // some notices are lost
		s.hooks.Changed(mutex)
	}
}

func (r *memoryRow) live(now int64) bool { return r.owner && r.TransitionAt > now }

func (r *memoryRow) state(now int64) State {
	s := r.State
	s.Now, s.Live = now, r.live(now)
	return s
}

func (r *memoryRow) windows(l *Lease, now int64) {
	r.AcquiredAt, r.TTLAt = now, now+l.TTL.Milliseconds()
	r.TransitionAt = r.TTLAt + l.Transition.Milliseconds()
}

func (r *memoryRow) begin(l *Lease, mark, now int64) {
	r.Revision++
	r.owner, r.Owner, r.Token, r.Mark = true, l.Owner, r.Token+7, mark
	r.windows(l, now)
}

// late delays a reply.
func (d *memory) late(step string) {
	d.mu.Lock()
	slow := d.slow[step]
	delete(d.slow, step)
	d.mu.Unlock()
	time.Sleep(slow)
}

func (s *memoryStore) Start(_ context.Context, h Hooks) error {
	s.hooks = h
	return nil
}

func (s *memoryStore) Take(ctx context.Context, mutex string, l *Lease) (how Taking, was State, err error) {
	want := *l
	mark := rand.Int64()
	var res Lease
	err = s.step(ctx, mutex, true, func(r *memoryRow, now int64, answer bool) {
		var h Taking
		switch {
		case !r.live(now):
			r.begin(&want, mark, now)
			h = Granted
		case r.Owner == want.Owner:
			r.windows(&want, now)
			r.Mark++
			h = Renewed
		}
		if answer {
			how, was = h, r.state(now)
			res.Token, res.Revision = r.Token, r.Revision
		}
	})
	s.late("Take")
	if err == nil && how != Held {
		l.Token, l.Revision = res.Token, res.Revision
	}
	return how, was, err
}

func (s *memoryStore) Renew(ctx context.Context, mutex string, l *Lease) (ok bool, err error) {
	want, token := *l, uint64(0)
	err = s.step(ctx, mutex, true, func(r *memoryRow, now int64, answer bool) {
		done := r.live(now) && r.Owner == want.Owner && (want.Token == 0 || want.Token == r.Token)
		if done {
			r.windows(&want, now)
			r.Mark++
		}
		if answer {
			ok, token = done, r.Token
		}
	})
	s.late("Renew")
	if err == nil && ok {
		l.Token = token
	}
	return ok, err
}

func (s *memoryStore) Pass(ctx context.Context, mutex string, expect From, to *Lease) (revision uint64, ok bool, err error) {
	var next, res Lease
	if to != nil {
		to.Mark = rand.Int64()
		next = *to
	}
	err = s.step(ctx, mutex, true, func(r *memoryRow, now int64, answer bool) {
		held := r.live(now)
		done := expect.Free() && !held && r.Revision == expect.Revision ||
			held && r.Owner == expect.Owner && expect.Token == r.Token && (expect.Mark == 0 || expect.Mark == r.Mark)
		switch {
		case done && to != nil:
			if held {
				r.Revision++
			}
			r.begin(&next, next.Mark, now)
		case done:
			r.Revision++
			r.owner, r.Owner, r.TransitionAt = false, "", now
		}
		if answer {
			ok, revision = done, r.Revision
			res.Token, res.Revision = r.Token, r.Revision
		}
	})
	if err == nil && ok && to != nil {
		to.Token, to.Revision = res.Token, res.Revision
	}
	return revision, ok, err
}

func (s *memoryStore) Read(ctx context.Context, mutex string, settled bool) (state State, err error) {
	err = s.step(ctx, mutex, settled, func(r *memoryRow, now int64, answer bool) {
		if answer {
			state = r.state(now)
		}
	})
	s.late("Read")
	return state, err
}

func (s *memoryStore) Scan(ctx context.Context, from, to uint64, limit int) (list []Scanned, err error) {
	err = s.step(ctx, "", false, func(_ *memoryRow, now int64, answer bool) {
		for mutex, r := range s.rows {
			if key := s.ScanKey(mutex); answer && r.live(now) && key >= from && key <= to {
				list = append(list, Scanned{mutex, key, r.state(now)})
			}
		}
	})
	slices.SortFunc(list, byKey)
	if limit > 0 && len(list) > limit {
		list = list[:limit]
	}
	return list, err
}

func (s *memoryStore) ScanKey(mutex string) uint64 {
	return uint64(crc32.ChecksumIEEE([]byte(mutex)))
}

func (s *memoryStore) Horizon(t time.Time) int64 {
	return t.Add(memoryClock + memoryLate).UnixMilli()
}

func (s *memoryStore) CheckNames(string, string) error { return nil }

func (s *memoryStore) Ping(ctx context.Context) error {
	return s.step(ctx, "", false, func(*memoryRow, int64, bool) {})
}

func (s *memoryStore) Check(ctx context.Context) ([]Fault, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse, nil
}

func (s *memoryStore) Close() error { return nil }

const requestTimeout = 3 * time.Second

// engineOn starts a server on the data.
func engineOn(t testing.TB, d *memory, set func(*Options)) *Engine {
	t.Helper()
	o := Options{
		Name: "memory", Notices: conformance.NewBroker(), Timeout: requestTimeout,
		HandoffWindow: time.Second, QueueGrace: 5 * time.Second,
	}
	if set != nil {
		set(&o)
	}
	e, err := Open(t.Context(), o, d.store())
	if err != nil {
		t.Fatalf("Open: %v; want no error", err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// The suite runs on a store that announces changes, and on one that does not.
func TestEngineConformance(t *testing.T) {
	for name, announce := range map[string]bool{"announced": true, "polled": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMemory()
			d.announce = announce
			e := conformance.Engine{
				Name: "memory", Promises: "../mysql", Shared: true, PollLatency: 1300 * time.Millisecond,
				Harm: func(testing.TB, string) func() {
					d.set(func() { d.harm = &simba.MisconfiguredError{Engine: "memory", Err: errors.New("the data is gone")} })
					return func() { d.set(func() { d.harm = nil }) }
				},
				Open: func(t testing.TB, n simba.Notices, timeout time.Duration) conformance.Backend {
					o := Options{Name: "memory", Notices: n, Timeout: timeout}
					if !announce {
						o.Poll = 50 * time.Millisecond
					}
					b, err := Open(t.Context(), o, d.store())
					if err != nil {
						t.Fatal(err)
					}
					return b
				},
			}
			conformance.Run(t, e)
		})
	}
}
