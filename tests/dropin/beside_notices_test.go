package dropin

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
)

type subscription struct {
	m   *meeting
	sub *redis.PubSub
	all []string
}

// subscribe subscribes to a channel where rdb is connected: at the server or at the store.
func (m *meeting) subscribe(rdb *redis.Client, channel string) *subscription {
	m.Helper()
	sub := rdb.Subscribe(m.ctx, channel)
	m.Cleanup(func() { sub.Close() })
	_, err := sub.Receive(m.ctx)
	m.must(err)
	return &subscription{m: m, sub: sub}
}

// next returns the next payload. It fails the test if none arrives within soon.
func (s *subscription) next(what string) string {
	s.m.Helper()
	got, err := s.sub.ReceiveTimeout(s.m.ctx, soon)
	if err != nil {
		s.m.Fatalf("no payload arrived for %s: %v; earlier payloads: %q", what, err, s.all)
	}
	p := got.(*redis.Message).Payload
	s.all = append(s.all, p)
	return p
}

func (s *subscription) await(payload string) {
	s.m.Helper()
	for s.next(payload) != payload {
	}
}

// expect fails the test unless the first payloads are the given ones.
func (s *subscription) expect(payloads ...string) {
	s.m.Helper()
	for range payloads {
		s.next(strings.Join(payloads, ", "))
	}
	if got, want := strings.Join(s.all, ", "), strings.Join(payloads, ", "); got != want {
		s.m.Errorf("payloads on %v: %s; want %s", s.sub, got, want)
	}
}

// expectAcquired works like expect, but skips notices of releases.
func (s *subscription) expectAcquired(payloads ...string) {
	s.m.Helper()
	var got []string
	want := strings.Join(payloads, ", ")
	for len(got) < len(payloads) {
		if p := s.next(want); !strings.HasPrefix(p, "released@@") {
			got = append(got, p)
		}
	}
	if g := strings.Join(got, ", "); g != want {
		s.m.Errorf("payloads on %v: %s; want %s", s.sub, g, want)
	}
}

var noticeRules = []rule{
	{"a new tenure is announced once", nil, func(m *meeting) {
		server, store := m.subscribe(m.rdb, seeds.Lease(m.mutex)), m.subscribe(m.store, seeds.Lease(m.mutex))
		m.must(m.owns(m.jvm("jvm")).end(m.ctx))
		m.until("the server has seen the release", func() bool {
			o, err := record(m.ctx, m.rdb, "simba.owner", m.mutex)
			return err == nil && o == nil
		})
		m.takes("ours")
		// The scripts of a generation with a queue publish no release on this channel. The server
		// publishes such a release only if it has seen it.
		if m.gen.Queues {
			store.expectAcquired("acquired@@jvm", "acquired@@ours")
		} else {
			store.expect("acquired@@jvm", "released@@jvm", "acquired@@ours")
		}
		server.expectAcquired("acquired@@jvm", "acquired@@ours")
	}},
	{"a release or a break without a next waiter is announced", nil, func(m *meeting) {
		// Both subscriptions stay open to the end, because the store publishes a tenure earlier
		// than the server.
		server, store := m.subscribe(m.rdb, seeds.Lease(m.mutex)), m.subscribe(m.store, seeds.Lease(m.mutex))
		for name, end := range map[string][]any{
			"release": {"simba.release", m.mutex, "ours"},
			"break":   {"simba.break", m.mutex},
		} {
			m.takes("ours")
			is(m, m.rdb, int64(1), end...)
			for _, s := range []*subscription{store, server} {
				if before, got := s.next(name), s.next(name); before != "acquired@@ours" || got != "released@@ours" {
					m.Errorf("for the tenure and its %s, the notices %s and %s arrive, want acquired@@ours and released@@ours", name, before, got)
				}
			}
		}
	}},
	{"a handoff announces only the new tenure", nil, func(m *meeting) {
		m.takes("ours")
		w := m.waits("waits")
		store := m.subscribe(m.store, seeds.Lease(m.mutex))
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		m.comes("our waiter owns it", w)
		store.expect("acquired@@waits")
	}},
}
