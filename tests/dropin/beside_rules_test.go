package dropin

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// rule is a test of one rule for a mutex that contenders of Simba ("theirs") and of this project
// ("ours") share. It runs with each generation of Simba: a range of versions with the same scripts.
type rule struct {
	name string
	only func(seeds.Generation) bool // selects generations; nil = all
	run  func(*meeting)
}

func queuing(g seeds.Generation) bool { return g.Queues }

func fencing(g seeds.Generation) bool { return g.Tokens }

// wakesTheirs checks that a command which ends our tenure wakes a contender of Simba.
func (m *meeting) wakesTheirs(end ...any) {
	m.Helper()
	m.takes("ours")
	k := m.queues(m.jvm("jvm"))
	is(m, m.rdb, int64(1), end...)
	comes(m, "their waiter owns it", k)
}

var handoverRules = []rule{
	{"their release grants our waiter at once", nil, func(m *meeting) {
		k := m.owns(m.jvm("jvm"))
		w := m.waits("ours")
		m.awaitFirstRead()
		m.must(k.end(m.ctx))
		comes(m, "our waiter owns it", w)
	}},
	{"their release grants five waiters of ours in order", nil, func(m *meeting) {
		k := m.owns(m.jvm("jvm"))
		var all []<-chan uint64
		for i := range 5 {
			all = append(all, m.waits(fmt.Sprint("ours", i)))
		}
		m.awaitFirstRead()
		m.must(k.end(m.ctx))
		m.inOrder(all)
	}},
	{"our waiters keep their queue entries when the queue of theirs is deleted", nil, func(m *meeting) {
		k := m.owns(m.jvm("jvm"))
		var all []<-chan uint64
		for i := range 5 {
			all = append(all, m.waits(fmt.Sprint("ours", i)))
		}
		m.must(m.store.Del(m.ctx, seeds.Queue(m.mutex)).Err())
		all = append(all, m.waits("ours5"))
		m.awaitFirstRead()
		m.must(k.end(m.ctx))
		m.inOrder(all)
	}},
	{"our release wakes their waiter", nil, func(m *meeting) { m.wakesTheirs("simba.release", m.mutex, "ours") }},
	{"our break wakes their waiter", nil, func(m *meeting) { m.wakesTheirs("simba.break", m.mutex) }},
	{"the end of our session wakes their waiter", nil, func(m *meeting) {
		rdb := connect(m.T, m.at.servers[0])
		o, err := record(m.ctx, rdb, "simba.acquire", m.mutex, "ours", time.Hour.Milliseconds(), "session")
		if err != nil || o["status"] != "acquired" {
			m.Fatalf("SIMBA.ACQUIRE returns %v, %v, want acquired", o, err)
		}
		k := m.queues(m.jvm("jvm"))
		rdb.Close()
		comes(m, "their waiter owns it", k)
	}},
	{"the end of our reservation wakes their waiter", nil, func(m *meeting) {
		m.takes("ours")
		notices := m.subscribe(m.rdb, seeds.Lease(m.mutex)+":polls")
		if o, err := record(m.ctx, m.rdb, "simba.acquire", m.mutex, "polls", time.Hour.Milliseconds()); err != nil || o["status"] != "queued" {
			m.Fatalf("SIMBA.ACQUIRE returns %v, %v, want queued", o, err)
		}
		if m.gen.Queues {
			// Their queue sorts waiters by arrival in whole seconds, and our waiter must come
			// first.
			time.Sleep(time.Second)
		}
		k := m.queues(m.jvm("jvm"))
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		if m.gen.Queues { // Simba 3.2 and later may ignore the reservation
			notices.await("released@@ours")
		}
		comes(m, "their waiter owns it", k)
	}},
	{"their release wakes their waiter beside our subscriber", nil, func(m *meeting) {
		m.subscribe(m.rdb, seeds.Lease(m.mutex))
		k := m.owns(m.jvm("jvm0"))
		w := m.queues(m.jvm("jvm1"))
		m.awaitFirstRead()
		m.must(k.end(m.ctx))
		comes(m, "their waiter owns it", w)
	}},
	{"the end of their lease grants our waiter", nil, func(m *meeting) {
		k := m.owns(m.jvm("jvm"))
		token := m.owner("jvm")
		k.lease = 500
		m.must(k.guard(m.ctx))
		w := m.waits("ours")
		comes(m, "our waiter owns it", w)
		if next := m.owner("ours"); next <= token {
			m.Errorf("our token is %d, want more than %d, the token of the earlier tenure", next, token)
		}
		if m.check(token) {
			m.Error("CHECK passes a token whose lease is over")
		}
	}},
	{"a release announced to a dead contender of theirs grants our waiter at once", queuing, func(m *meeting) {
		k, dead := m.owns(m.jvm("jvm0")), m.jvm("jvm1")
		// Like a contender whose process has died, "dead" has no subscription.
		if owner, _, err := dead.try(m.ctx); err != nil || owner != "jvm0" {
			m.Fatalf("their try returns the owner %q, %v, want jvm0", owner, err)
		}
		w := m.waits("ours")
		m.awaitFirstRead()
		m.must(k.end(m.ctx))
		comes(m, "our waiter owns it", w)
	}},
	{"a release announced to a dead contender of theirs wakes one of a generation without a queue", queuing, func(m *meeting) {
		m.subscribe(m.rdb, seeds.Lease(m.mutex))
		k, dead := m.owns(m.jvm("jvm0")), m.jvm("jvm1")
		if owner, _, err := dead.try(m.ctx); err != nil || owner != "jvm0" {
			m.Fatalf("their try returns the owner %q, %v, want jvm0", owner, err)
		}
		w := m.queues(m.jvmOf(seeds.Simba33, "jvm2"))
		m.awaitFirstRead()
		m.must(k.end(m.ctx))
		comes(m, "their new waiter owns it", w)
	}},
	{"their notified contender that is overtaken is queued again", queuing, func(m *meeting) {
		m.subscribe(m.rdb, seeds.Lease(m.mutex))
		k, barger := m.owns(m.jvm("jvm0")), m.jvm("jvm2")
		w := m.queues(m.jvm("jvm1"))
		m.awaitFirstRead()
		// A pipeline, so that no other client acquires the mutex between the two commands.
		_, err := m.store.Pipelined(m.ctx, func(p redis.Pipeliner) error {
			k.Send(m.ctx, p, k.Of.Release)
			barger.Send(m.ctx, p, barger.Of.Acquire, barger.lease)
			return nil
		})
		m.must(err)
		m.awaitFirstRead()
		// The engine embedded has reserved the mutex for jvm1, so the barger does not own it.
		if m.at.engine != "embedded" {
			m.must(barger.end(m.ctx))
		}
		comes(m, "their waiter owns it", w)
	}},
	{"a dead contender of theirs keeps its queue entry when our waiter is granted", queuing, func(m *meeting) {
		m.takes("ours")
		dead := m.jvm("dead")
		if owner, _, err := dead.try(m.ctx); err != nil || owner != "ours" {
			m.Fatalf("their try returns the owner %q, %v, want ours", owner, err)
		}
		w := m.waits("waits")
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		comes(m, "our waiter owns it", w)
		if _, err := m.store.ZScore(m.ctx, seeds.Queue(m.mutex), "dead").Result(); err != nil {
			m.Errorf("ZSCORE of the dead contender returns the error %v, want its queue entry", err)
		}
	}},
	{"the mutex is reserved for the next contender of theirs", queuing, func(m *meeting) {
		m.takes("ours")
		k := m.jvm("jvm")
		m.must(k.subscribe(m.ctx))
		if owner, _, err := k.try(m.ctx); err != nil || owner != "ours" {
			m.Fatalf("their try returns the owner %q, %v, want ours", owner, err)
		}
		var released, barges *redis.Cmd
		// A pipeline, because the reservation lasts only a second.
		_, err := m.rdb.Pipelined(m.ctx, func(p redis.Pipeliner) error {
			released = p.Do(m.ctx, "simba.release", m.mutex, "ours")
			barges = p.Do(m.ctx, "simba.acquire", m.mutex, "barges", 60_000, "noqueue")
			return nil
		})
		m.must(err)
		if n := released.Val(); n != int64(1) {
			m.Errorf("SIMBA.RELEASE returns %v, want 1", n)
		}
		if o, err := simbatest.ToRecord(barges.Result()); err != nil || o["status"] != "busy" {
			m.Errorf("SIMBA.ACQUIRE of a later contender returns %v, %v, want busy", o, err)
		}
		m.must(k.awaitNotice(m.ctx, time.Hour))
		m.owns(k)
	}},
}

func TestSimbaContendersAndOursAgreeOnHandoffsTokensAndNotices(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"redis", "embedded"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			usual, legacy := newSite(t, engine, 2), newSite(t, engine, 2, legacyChannels)
			for _, gen := range seeds.Generations {
				at := usual
				if gen.Braceless {
					at = legacy
				}
				t.Run(gen.Name, func(t *testing.T) {
					for _, r := range slices.Concat(handoverRules, tokenRules, noticeRules) {
						if r.only == nil || r.only(gen) {
							t.Run(r.name, func(t *testing.T) { r.run(newMeeting(t, at, gen)) })
						}
					}
				})
			}
		})
	}
}
