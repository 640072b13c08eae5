package dropin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// meeting is one mutex that a contender of Simba and ours want. All leases are long: what does not come soon
// would only come when one ends.
type meeting struct {
	*testing.T
	at    *site
	gen   seeds.Generation
	mutex string
	rdb   *redis.Client // of our server
	store *redis.Client // where theirs contend

	ctx context.Context // of the test: what runs beside it ends with that
	end context.CancelFunc
}

// runs runs f beside the test, which ends when f has. A command of its client that blocks ends then too.
func (m *meeting) runs(rdb *redis.Client, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	m.Cleanup(func() {
		m.end()
		rdb.Close()
		<-done
	})
}

func newMeeting(t *testing.T, at *site, gen seeds.Generation) *meeting {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), simbatest.Patience)
	t.Cleanup(cancel)
	mutex := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" {}", r) {
			return '-'
		}
		return r
	}, t.Name())
	mutex = mutex[max(0, len(mutex)-200):]
	return &meeting{t, at, gen, mutex, connect(t, at.servers[0]), connectTo(t, at.store), ctx, cancel}
}

func (m *meeting) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// jvm returns a contender of the generation of the test.
func (m *meeting) jvm(id string) *jvm { return m.jvmOf(m.gen, id) }

func (m *meeting) jvmOf(gen seeds.Generation, id string) *jvm {
	m.Helper()
	return newJVM(m.T, m.at.store, gen, m.mutex, id)
}

// owns has a contender of Simba take the free mutex, and returns it.
func (m *meeting) owns(k *jvm) *jvm {
	m.Helper()
	owner, _, err := k.try(m.ctx)
	m.must(err)
	if owner != k.id {
		m.Fatalf("%s finds %q as the owner of a free mutex", k.id, owner)
	}
	return k
}

// queues has a contender of Simba wait. What comes tells the owner when it has the mutex.
func (m *meeting) queues(k *jvm) (owns <-chan error) {
	m.Helper()
	got, waiting := make(chan error, 1), make(chan bool, 100)
	m.runs(k.rdb, func() {
		_, err := k.contend(m.ctx, func() {
			select {
			case waiting <- true:
			default:
			}
		})
		got <- err
	})
	m.comes("the contender "+k.id+" of Simba waits", waiting)
	return got
}

// takes has us acquire the free mutex, and returns our token.
func (m *meeting) takes(id string) uint64 {
	m.Helper()
	o, err := record(m.ctx, m.rdb, "simba.acquire", m.mutex, id, time.Hour.Milliseconds())
	m.must(err)
	if o["status"] != "acquired" {
		m.Fatalf("%s acquires a free mutex: %v", id, o)
	}
	return uint64(o["token"].(int64))
}

// waits has a client of ours wait, and returns when it is in the queue, or had its turn already. Its token
// comes when it has the mutex.
func (m *meeting) waits(id string) (owns <-chan uint64) {
	m.Helper()
	got := make(chan uint64, 1)
	rdb := connect(m.T, m.at.last())
	m.runs(rdb, func() {
		o, err := record(m.ctx, rdb, "simba.acquire", m.mutex, id, time.Hour.Milliseconds(), "wait", 0)
		if m.ctx.Err() != nil {
			return
		}
		if err != nil || o["status"] != "acquired" {
			m.Errorf("%s waits: %v, %v", id, o, err)
			return
		}
		got <- uint64(o["token"].(int64))
	})
	m.until(id+" is in the queue", func() bool {
		if len(got) > 0 {
			return true
		}
		all, err := m.rdb.Do(m.ctx, "simba.queue", m.mutex).Slice()
		m.must(err)
		for _, q := range all {
			if r := q.(map[any]any); r["contender"] == id && r["kind"] == "blocked" {
				return true
			}
		}
		return false
	})
	return got
}

func (m *meeting) until(what string, is func() bool) {
	m.Helper()
	for end := time.Now().Add(simbatest.Patience); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			m.Fatalf("in vain until %s", what)
		}
	}
}

// settle lets pass what a server does when somebody begins to wait there: it looks at the mutex then, and
// might find by that what it is not told of.
func (m *meeting) settle() { time.Sleep(500 * time.Millisecond) }

// comes fails the test unless that happens long before the leases end.
func (m *meeting) comes(what string, happens any) {
	m.Helper()
	late := time.After(soon)
	var ok bool
	switch c := happens.(type) {
	case <-chan error:
		select {
		case err := <-c:
			if err != nil {
				m.Fatalf("%s: %v", what, err)
			}
			ok = true
		case <-late:
		}
	case <-chan uint64:
		select {
		case <-c:
			ok = true
		case <-late:
		}
	case chan bool:
		select {
		case <-c:
			ok = true
		case <-late:
		}
	default:
		panic(fmt.Sprintf("%T", happens))
	}
	if !ok {
		o, _ := record(m.ctx, m.rdb, "simba.owner", m.mutex)
		q, _ := m.rdb.Do(m.ctx, "simba.queue", m.mutex).Slice()
		key, _ := m.store.Get(m.ctx, seeds.Lease(m.mutex)).Result()
		m.Fatalf("not in %v: %s; the owner is %v, by the store %q, the queue %v", soon, what, o, key, q)
	}
}

// owner returns the server's record of the owner's tenure, which must be there.
func (m *meeting) owner(id string) (token uint64) {
	m.Helper()
	o, err := record(m.ctx, m.rdb, "simba.owner", m.mutex)
	m.must(err)
	if o == nil || o["owner"] != id {
		m.Fatalf("the server says that %v is the owner, not %s", o, id)
	}
	return uint64(o["token"].(int64))
}

func (m *meeting) check(token uint64) bool {
	m.Helper()
	n, err := m.rdb.Do(m.ctx, "simba.check", m.mutex, token).Int()
	m.must(err)
	return n == 1
}

// ear is a subscription, and what it heard.
type ear struct {
	m   *meeting
	sub *redis.PubSub
	all []string
}

// listens subscribes to a channel of a server, or of the store.
func (m *meeting) listens(rdb *redis.Client, channel string) *ear {
	m.Helper()
	sub := rdb.Subscribe(m.ctx, channel)
	m.Cleanup(func() { sub.Close() })
	_, err := sub.Receive(m.ctx)
	m.must(err)
	return &ear{m: m, sub: sub}
}

// next returns the next payload; it must come long before a lease ends.
func (e *ear) next(what string) string {
	e.m.Helper()
	got, err := e.sub.ReceiveTimeout(e.m.ctx, soon)
	if err != nil {
		e.m.Fatalf("nothing comes (%s): %v; before came %q", what, err, e.all)
	}
	p := got.(*redis.Message).Payload
	e.all = append(e.all, p)
	return p
}

func (e *ear) hears(payload string) {
	e.m.Helper()
	for e.next(payload) != payload {
	}
}

// exactly fails the test unless what came since the subscription, up to that payload, is that.
func (e *ear) exactly(payloads ...string) {
	e.m.Helper()
	for range payloads {
		e.next(strings.Join(payloads, ", "))
	}
	if got, want := strings.Join(e.all, ", "), strings.Join(payloads, ", "); got != want {
		e.m.Errorf("on %v came %s; want %s", e.sub, got, want)
	}
}

// rule is one rule of how a generation and ours get along.
type rule struct {
	name string
	only func(seeds.Generation) bool // nil = it is for all generations
	run  func(*meeting)
}

func queuing(g seeds.Generation) bool { return g.Queues }
func fencing(g seeds.Generation) bool { return g.Tokens }

var besideRules = []rule{
	{"their release grants our waiter at once", nil, func(m *meeting) {
		k := m.owns(m.jvm("jvm"))
		w := m.waits("ours")
		m.settle()
		m.must(k.end(m.ctx))
		m.comes("our waiter owns it", w)
	}},
	{"their release grants five waiters of ours in order", nil, func(m *meeting) {
		k := m.owns(m.jvm("jvm"))
		var all []<-chan uint64
		for i := range 5 {
			all = append(all, m.waits(fmt.Sprint("ours", i)))
		}
		m.settle()
		m.must(k.end(m.ctx))
		m.inOrder(all)
	}},
	{"the places of ours survive that their queue is deleted", nil, func(m *meeting) {
		k := m.owns(m.jvm("jvm"))
		var all []<-chan uint64
		for i := range 5 {
			all = append(all, m.waits(fmt.Sprint("ours", i)))
		}
		m.must(m.store.Del(m.ctx, seeds.Queue(m.mutex)).Err())
		all = append(all, m.waits("ours5"))
		m.settle()
		m.must(k.end(m.ctx))
		m.inOrder(all)
	}},
	{"our release wakes their waiter", nil, func(m *meeting) {
		m.takes("ours")
		k := m.queues(m.jvm("jvm"))
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		m.comes("their waiter owns it", k)
	}},
	{"our break wakes their waiter", nil, func(m *meeting) {
		m.takes("ours")
		k := m.queues(m.jvm("jvm"))
		is(m, m.rdb, int64(1), "simba.break", m.mutex)
		m.comes("their waiter owns it", k)
	}},
	{"the end of our session wakes their waiter", nil, func(m *meeting) {
		rdb := connect(m.T, m.at.servers[0])
		o, err := record(m.ctx, rdb, "simba.acquire", m.mutex, "ours", time.Hour.Milliseconds(), "session")
		if err != nil || o["status"] != "acquired" {
			m.Fatal(o, err)
		}
		k := m.queues(m.jvm("jvm"))
		rdb.Close()
		m.comes("their waiter owns it", k)
	}},
	{"the lapse of a turn of ours wakes their waiter", nil, func(m *meeting) {
		m.takes("ours")
		turn := m.listens(m.rdb, seeds.Lease(m.mutex)+":polls")
		if o, err := record(m.ctx, m.rdb, "simba.acquire", m.mutex, "polls", time.Hour.Milliseconds()); err != nil || o["status"] != "queued" {
			m.Fatal(o, err)
		}
		if m.gen.Queues {
			time.Sleep(time.Second) // their places are by whole seconds, and it must come later
		}
		k := m.queues(m.jvm("jvm"))
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		if m.gen.Queues { // 3.2 and later need not heed that it is kept
			turn.hears("released@@ours")
		}
		m.comes("their waiter owns it", k)
	}},
	{"their release wakes their waiter beside ours that listen", nil, func(m *meeting) {
		m.listens(m.rdb, seeds.Lease(m.mutex))
		k := m.owns(m.jvm("jvm0"))
		w := m.queues(m.jvm("jvm1"))
		m.settle()
		m.must(k.end(m.ctx))
		m.comes("their waiter owns it", w)
	}},
	{"their tenure has one token, which CHECK passes until it ends", nil, func(m *meeting) {
		before := m.takes("ours")
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		k := m.owns(m.jvm("jvm"))
		token := m.owner("jvm")
		if k.last != 0 && k.last != token {
			m.Errorf("they were told %d, the server says %d", k.last, token)
		}
		if token <= before {
			m.Errorf("token %d after ours, %d", token, before)
		}
		for range 3 {
			m.must(k.guard(m.ctx))
			if t := m.owner("jvm"); t != token || !m.check(token) {
				m.Errorf("after a renewal the token is %d, not %d; check: %v", t, token, m.check(token))
			}
		}
		if m.check(before) {
			m.Error("CHECK passes our token of before")
		}
		m.must(k.end(m.ctx))
		if m.check(token) {
			m.Error("CHECK passes a token whose tenure is over")
		}
		if next := m.takes("ours"); next <= token {
			m.Errorf("ours has %d after %d", next, token)
		}
	}},
	{"alternating tenures have ascending tokens", nil, func(m *meeting) {
		var last uint64
		k := m.jvm("jvm")
		for i := range 6 {
			var token uint64
			if i%2 == 0 {
				m.owns(k)
				if token = m.owner("jvm"); k.last != 0 && k.last != token {
					m.Errorf("they were told %d, the server says %d", k.last, token)
				}
				m.must(k.end(m.ctx))
			} else {
				token = m.takes("ours")
				is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
			}
			if token <= last {
				m.Errorf("tenure %d has token %d after %d", i, token, last)
			}
			last = token
		}
	}},
	{"theirs is told our token", fencing, func(m *meeting) {
		token := m.takes("ours")
		k := m.jvm("jvm")
		owner, _, told, err := k.state(m.ctx, k.gen.Acquire)
		m.must(err)
		if owner != "ours" || told != token {
			m.Errorf("their acquisition returns %s with %d, not ours with %d", owner, told, token)
		}
		if owner, _, told, err = k.state(m.ctx, k.gen.Guard); err != nil || owner != "ours" || told != token {
			m.Errorf("their renewal returns %s with %d, %v, not ours with %d", owner, told, err, token)
		}
	}},
	{"the token's key is there as long as our lease", fencing, func(m *meeting) {
		token := m.takes("ours")
		is(m, m.store, strconv.FormatUint(token, 10), "get", seeds.Token(m.mutex))
		lock, err := m.store.PTTL(m.ctx, seeds.Lease(m.mutex)).Result()
		m.must(err)
		if ms, err := m.store.PTTL(m.ctx, seeds.Token(m.mutex)).Result(); err != nil || ms <= lock-time.Minute || ms > lock {
			m.Errorf("the token expires in %v, the lease in %v, %v", ms, lock, err)
		}
		if n, err := m.store.Get(m.ctx, seeds.Fence(m.mutex)).Uint64(); err != nil || n != token {
			m.Errorf("the counter is %d, %v; our token is %d", n, err, token)
		}
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		is(m, m.store, nil, "get", seeds.Token(m.mutex))
	}},
	{"a tenure between two of one contender that nobody saw changes its token", nil, func(m *meeting) {
		k, between := m.jvm("jvm"), m.jvmOf(seeds.Simba33, "unseen")
		m.owns(k)
		first := m.owner("jvm")
		m.must(k.end(m.ctx))
		m.must(m.owns(between).end(m.ctx))
		m.owns(k)
		if m.check(first) {
			m.Error("CHECK passes the token of the tenure before")
		}
		if token := m.owner("jvm"); token <= between.last || token <= first {
			m.Errorf("token %d after %d and, unseen, %d", token, first, between.last)
		}
	}},
	{"a lease of theirs that ends is handed on", nil, func(m *meeting) {
		k := m.jvm("jvm")
		k.lease = 500
		m.owns(k)
		token := m.owner("jvm")
		w := m.waits("ours")
		m.comes("our waiter owns it", w)
		if next := m.owner("ours"); next <= token {
			m.Errorf("ours has %d after %d", next, token)
		}
		if m.check(token) {
			m.Error("CHECK passes a token whose lease is over")
		}
	}},
	{"a new tenure is announced once", nil, func(m *meeting) {
		server, store := m.listens(m.rdb, seeds.Lease(m.mutex)), m.listens(m.store, seeds.Lease(m.mutex))
		m.must(m.owns(m.jvm("jvm")).end(m.ctx))
		m.until("the server has seen the release", func() bool {
			o, err := record(m.ctx, m.rdb, "simba.owner", m.mutex)
			return err == nil && o == nil
		})
		m.takes("ours")
		if m.gen.Queues { // their release tells nobody here: whether the server tells all depends on whether it saw it
			store.acquisitions("acquired@@jvm", "acquired@@ours")
		} else {
			store.exactly("acquired@@jvm", "released@@jvm", "acquired@@ours")
		}
		server.acquisitions("acquired@@jvm", "acquired@@ours")
	}},
	{"what is free and not handed on is announced", nil, func(m *meeting) {
		for name, end := range map[string][]any{
			"release": {"simba.release", m.mutex, "ours"},
			"break":   {"simba.break", m.mutex},
		} {
			m.takes("ours")
			server, store := m.listens(m.rdb, seeds.Lease(m.mutex)), m.listens(m.store, seeds.Lease(m.mutex))
			is(m, m.rdb, int64(1), end...)
			for _, e := range []*ear{store, server} {
				if got := e.next(name); got != "released@@ours" {
					m.Errorf("after a %s comes %s", name, got)
				}
			}
		}
	}},
	{"a handoff announces only the new tenure", nil, func(m *meeting) {
		m.takes("ours")
		w := m.waits("waits")
		store := m.listens(m.store, seeds.Lease(m.mutex))
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		m.comes("our waiter owns it", w)
		store.exactly("acquired@@waits")
	}},
	{"a release told to a dead contender of theirs grants our waiter at once", queuing, func(m *meeting) {
		k, dead := m.owns(m.jvm("jvm0")), m.jvm("jvm1")
		if owner, _, err := dead.try(m.ctx); err != nil || owner != "jvm0" { // and it listens nowhere
			m.Fatal(owner, err)
		}
		w := m.waits("ours")
		m.settle()
		m.must(k.end(m.ctx))
		m.comes("our waiter owns it", w)
	}},
	{"a release told to a dead contender of theirs reaches one without a queue", queuing, func(m *meeting) {
		m.listens(m.rdb, seeds.Lease(m.mutex))
		k, dead := m.owns(m.jvm("jvm0")), m.jvm("jvm1")
		if owner, _, err := dead.try(m.ctx); err != nil || owner != "jvm0" {
			m.Fatal(owner, err)
		}
		w := m.queues(m.jvmOf(seeds.Simba33, "jvm2"))
		m.settle()
		m.must(k.end(m.ctx))
		m.comes("their new waiter owns it", w)
	}},
	{"a contender of theirs that is overtaken has a place again", queuing, func(m *meeting) {
		m.listens(m.rdb, seeds.Lease(m.mutex))
		k, barger := m.owns(m.jvm("jvm0")), m.jvm("jvm2")
		w := m.queues(m.jvm("jvm1"))
		m.settle()
		_, err := m.store.Pipelined(m.ctx, func(p redis.Pipeliner) error { // nobody looks in between
			p.Eval(m.ctx, k.gen.Release.Source, k.gen.Release.Keys(m.mutex), k.id)
			p.Eval(m.ctx, barger.gen.Acquire.Source, barger.gen.Acquire.Keys(m.mutex), barger.id, barger.lease)
			return nil
		})
		m.must(err)
		m.settle()
		if m.at.engine != "embedded" { // that keeps the mutex for who was told
			m.must(barger.end(m.ctx))
		}
		m.comes("their waiter owns it", w)
	}},
	{"who is passed over keeps its entry", queuing, func(m *meeting) {
		m.takes("ours")
		dead := m.jvm("dead")
		if owner, _, err := dead.try(m.ctx); err != nil || owner != "ours" {
			m.Fatal(owner, err)
		}
		w := m.waits("waits")
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		m.comes("our waiter owns it", w)
		if _, err := m.store.ZScore(m.ctx, seeds.Queue(m.mutex), "dead").Result(); err != nil {
			m.Errorf("its entry: %v", err)
		}
	}},
	{"the mutex is kept for a contender of theirs whose turn it is", queuing, func(m *meeting) {
		m.takes("ours")
		k := m.jvm("jvm")
		m.must(k.listen(m.ctx))
		if owner, _, err := k.try(m.ctx); err != nil || owner != "ours" {
			m.Fatal(owner, err)
		}
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		o, err := record(m.ctx, m.rdb, "simba.acquire", m.mutex, "barges", 60_000, "noqueue")
		if err != nil || o["status"] != "busy" {
			m.Errorf("who comes later is answered %v, %v", o, err)
		}
		m.must(k.awaitTurn(m.ctx, time.Hour))
		m.owns(k)
	}},
}

// acquisitions is exactly for the new tenures that are announced; it passes over releases.
func (e *ear) acquisitions(payloads ...string) {
	e.m.Helper()
	var got []string
	want := strings.Join(payloads, ", ")
	for len(got) < len(payloads) {
		if p := e.next(want); !strings.HasPrefix(p, "released@@") {
			got = append(got, p)
		}
	}
	if g := strings.Join(got, ", "); g != want {
		e.m.Errorf("on %v came %s; want %s", e.sub, g, want)
	}
}

// inOrder has each waiter release when it owns the mutex, and looks that all own it in order.
func (m *meeting) inOrder(all []<-chan uint64) {
	m.Helper()
	var last uint64
	for i, w := range all {
		m.comes(fmt.Sprintf("waiter %d owns it", i), w)
		token := m.owner(fmt.Sprint("ours", i))
		if token <= last {
			m.Errorf("waiter %d has token %d after %d", i, token, last)
		}
		last = token
		is(m, m.rdb, int64(1), "simba.release", m.mutex, fmt.Sprint("ours", i))
	}
}

// TestEachRuleBesideSimba goes through the rules, one at a time, with each generation.
func TestEachRuleBesideSimba(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"redis", "embedded"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at := newSite(t, engine, 2)
			for _, gen := range seeds.Generations {
				t.Run(gen.Name, func(t *testing.T) {
					for _, r := range besideRules {
						if r.only == nil || r.only(gen) {
							t.Run(r.name, func(t *testing.T) { r.run(newMeeting(t, at, gen)) })
						}
					}
				})
			}
		})
	}
}
