package dropin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// queueless selects the generations whose contenders have no queue entry.
func queueless(g seeds.Generation) bool { return !g.Queues }

// near is a lease that ends so soon that a deaf contender keeps its turn.
const near = 1500

// takesFor is takes with a lease of some milliseconds.
func (m *meeting) takesFor(id string, ms int) {
	m.Helper()
	o, err := record(m.ctx, m.rdb, "simba.acquire", m.mutex, id, ms)
	m.must(err)
	if o["status"] != "acquired" {
		m.Fatalf("%s cannot acquire a free mutex: SIMBA.ACQUIRE returns %v", id, o)
	}
}

// sees makes a contender of Simba ask in vain, and returns an instant just before the end of the
// lease that it saw. A server keeps its turn for more than a second after that instant.
func (m *meeting) sees(k *jvm, owner string) (asksAgain time.Time) {
	m.Helper()
	asked := time.Now()
	got, left, err := k.try(m.ctx)
	if err != nil || got != owner {
		m.Fatalf("their try returns the owner %q, %v, want %s", got, err, owner)
	}
	return asked.Add(left)
}

// cycle makes two clients of ours own the mutex in turn, so that one always waits, until done gets
// a value. It returns the waiter.
func (m *meeting) cycle(done <-chan error) (waits <-chan uint64) {
	m.Helper()
	for i, all := 1, []<-chan uint64{nil, m.waits("ours1")}; ; i++ {
		is(m, m.rdb, int64(1), "simba.release", m.mutex, fmt.Sprint("ours", (i-1)%2))
		select {
		case err := <-done:
			m.must(err)
			return all[i%2]
		case <-all[i%2]:
		case <-time.After(soon):
			m.Fatalf("our waiter did not get the mutex within %v", soon)
		}
		all[(i+1)%2] = m.waits(fmt.Sprint("ours", (i+1)%2))
	}
}

var shareRules = []rule{
	{"a deaf contender that will soon ask keeps its turn", queuing, func(m *meeting) {
		for late := time.Now().Add(simbatest.Patience / 2); ; {
			m.takesFor("ours", near)
			k := m.jvm("jvm")
			again := m.sees(k, "ours")
			w := m.waits("waits")
			released, err := m.rdb.Do(m.ctx, "simba.release", m.mutex, "ours").Int()
			m.must(err)
			if released == 1 && time.Until(again) > 0 {
				owner, _, err := k.try(m.ctx)
				m.must(err)
				if owner == "jvm" {
					m.must(k.end(m.ctx))
					comes(m, "our waiter owns it", w)
					return
				}
				if time.Since(again) < time.Second {
					m.Fatalf("the contender's turn has gone to %s", owner)
				}
			}
			// A busy machine was too slow.
			comes(m, "our waiter owns it", w)
			is(m, m.rdb, int64(1), "simba.release", m.mutex, "waits")
			if time.Now().After(late) {
				m.Fatal("no release came before the end of its lease")
			}
		}
	}},
	{"a deaf contender keeps its turn after the end of a lease", queuing, func(m *meeting) {
		m.takesFor("ours", near)
		k := m.jvm("jvm")
		again := m.sees(k, "ours")
		w := m.waits("waits")
		time.Sleep(time.Until(again))
		owner := "ours"
		for owner == "ours" {
			var err error
			owner, _, err = k.try(m.ctx)
			m.must(err)
		}
		switch {
		case owner != "jvm" && time.Since(again) < time.Second:
			m.Fatalf("at the end of the lease, their try returns the owner %q, want jvm", owner)
		case owner == "jvm":
			m.must(k.end(m.ctx))
		}
		comes(m, "our waiter owns it", w)
	}},
	{"a deaf contender that misses its turn leaves the queue", queuing, func(m *meeting) {
		m.takesFor("ours", near)
		m.sees(m.jvm("jvm"), "ours")
		w := m.waits("waits")
		m.must(m.rdb.Do(m.ctx, "simba.break", m.mutex).Err()) // on a busy machine, the lease may be over
		comes(m, "our waiter owns it", w)
		simbatest.Await(m, "their contender has left the queue", func() bool {
			return m.store.ZScore(m.ctx, seeds.Queue(m.mutex), "jvm").Err() == redis.Nil
		})
	}},
	{"a deaf contender that will ask later is passed over and keeps its place", queuing, func(m *meeting) {
		m.takes("ours")
		m.sees(m.jvm("jvm"), "ours")
		w := m.waits("waits")
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		comes(m, "our waiter owns it", w)
		if first, err := m.store.ZRange(m.ctx, seeds.Queue(m.mutex), 0, 0).Result(); err != nil || len(first) != 1 || first[0] != "jvm" {
			m.Errorf("the first waiter is %v, %v, want jvm", first, err)
		}
	}},
	{"a contender without a queue gets its turn among our waiters", queueless, func(m *meeting) {
		m.takes("ours0")
		m.cycle(m.queues(m.jvm("jvm")))
	}},
	{"a new contender gets its turn beside an old one and ours", func(g seeds.Generation) bool { return g.Queues && !g.Braceless }, func(m *meeting) {
		m.takes("ours0")
		old := m.jvm("old")
		m.runs(old.rdb, func() {
			for m.ctx.Err() == nil {
				if _, err := old.acquire(m.ctx); err == nil {
					_ = old.release(m.ctx) // its lease cannot end
				}
			}
		})
		m.cycle(m.queues(m.jvmOf(seeds.Simba40, "new")))
	}},
	{"our waiter gets a mutex that is left to contenders which do not come", queueless, func(m *meeting) {
		m.takes("ours0")
		absent := m.jvm("jvm")
		m.must(absent.subscribe(m.ctx))
		m.sees(absent, "ours0")
		announced := m.subscribe(m.store, seeds.Lease(m.mutex))
		comes(m, "our waiter owns it", m.cycle(m.payload(announced, "released@@")))
	}},
}

// payload returns a channel that gets a value when a payload with the prefix arrives.
func (m *meeting) payload(s *subscription, prefix string) <-chan error {
	done := make(chan error, 1)
	rdb := m.store
	m.runs(rdb, func() {
		for {
			got, err := s.sub.ReceiveMessage(m.ctx)
			if err != nil || strings.HasPrefix(got.Payload, prefix) {
				done <- err
				return
			}
		}
	})
	return done
}

func TestSimbaContendersThatHearNothingOrDoNotQueueDoNotStarve(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"redis", "embedded"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at := newSite(t, engine, 2)
			for _, gen := range seeds.Generations {
				t.Run(gen.Name, func(t *testing.T) {
					for _, r := range shareRules {
						if r.only == nil || r.only(gen) {
							t.Run(r.name, func(t *testing.T) { r.run(newMeeting(t, at, gen)) })
						}
					}
				})
			}
		})
	}
}
