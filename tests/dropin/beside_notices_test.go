package dropin

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
)

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

// What is announced on the mutex' channel.
var noticeRules = []rule{
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
		// Both listen all the time: the server tells of a tenure when the store has told it, which may be later.
		server, store := m.listens(m.rdb, seeds.Lease(m.mutex)), m.listens(m.store, seeds.Lease(m.mutex))
		for name, end := range map[string][]any{
			"release": {"simba.release", m.mutex, "ours"},
			"break":   {"simba.break", m.mutex},
		} {
			m.takes("ours")
			is(m, m.rdb, int64(1), end...)
			for _, e := range []*ear{store, server} {
				if before, got := e.next(name), e.next(name); before != "acquired@@ours" || got != "released@@ours" {
					m.Errorf("after a %s come %s and %s", name, before, got)
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
}
