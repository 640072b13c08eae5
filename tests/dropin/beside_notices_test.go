package dropin

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/simbatest"
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
		simbatest.Await(m, "the server has seen the release", func() bool {
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
}

// channels subscribes to channels of the store.
func (m *meeting) channels(names ...string) *subscription {
	m.Helper()
	sub := m.store.Subscribe(m.ctx, names...)
	m.Cleanup(func() { sub.Close() })
	for range names {
		_, err := sub.Receive(m.ctx)
		m.must(err)
	}
	return &subscription{m: m, sub: sub}
}

// onlyOwn checks that nothing has arrived on a channel except a message of the test itself.
func (s *subscription) onlyOwn(channel string) {
	s.m.Helper()
	s.m.must(s.m.store.Publish(s.m.ctx, channel, "by the test").Err())
	s.expect("by the test")
}

// read reads the mutex in all ways. Each request makes the server compare the mutex with its
// record.
func (m *meeting) read() {
	m.Helper()
	m.subscribe(m.rdb, "simba-events:{"+m.mutex+"}")
	for _, request := range [][]any{
		{"simba.owner", m.mutex}, {"simba.check", m.mutex, 1}, {"simba.queue", m.mutex}, {"simba.acquire", m.mutex, "reads", 60_000, "noqueue"},
	} {
		m.must(m.rdb.Do(m.ctx, request...).Err())
	}
}

var quietRules = []rule{
	{"reads of an owner publish nothing on channels without braces", nil, func(m *meeting) {
		plain := m.channels("simba:"+m.mutex, "simba:"+m.mutex+":jvm")
		for range 2 { // the second time, the server has a record of an earlier tenure of ours
			k := m.owns(m.jvm("jvm"))
			m.read()
			m.owner("jvm")
			m.must(k.end(m.ctx))
			m.takes("ours")
			is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		}
		plain.onlyOwn("simba:" + m.mutex)
	}},
	{"a release publishes nothing on channels without braces", nil, func(m *meeting) {
		plain := m.channels("simba:"+m.mutex, "simba:"+m.mutex+":jvm")
		m.takes("ours")
		if owner, _, err := m.jvm("jvm").try(m.ctx); err != nil || owner != "ours" {
			m.Fatalf("their try returns the owner %q, %v, want ours", owner, err)
		}
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		m.takes("ours")
		is(m, m.rdb, int64(1), "simba.break", m.mutex)
		plain.onlyOwn("simba:" + m.mutex)
	}},
	{"reads of an owner publish no release", nil, func(m *meeting) {
		m.takes("ours")
		is(m, m.rdb, int64(1), "simba.release", m.mutex, "ours")
		braces := m.channels(seeds.Lease(m.mutex), seeds.Lease(m.mutex)+":jvm")
		m.owns(m.jvm("jvm"))
		m.read()
		braces.expect("acquired@@jvm")
		braces.all = nil
		braces.onlyOwn(seeds.Lease(m.mutex))
	}},
	{"a notice names an owner even if the server knows none", nil, func(m *meeting) {
		own := m.channels(seeds.Lease(m.mutex) + ":jvm")
		m.must(m.store.ZAdd(m.ctx, seeds.Queue(m.mutex), redis.Z{Score: 1, Member: "jvm"}).Err())
		m.must(m.rdb.Do(m.ctx, "simba.queue", m.mutex).Err())
		own.expect("released@@jvm")
	}},
}

func TestOnlyContendersThatAskForItAreWokenWithoutBraces(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"redis", "embedded"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			at := newSite(t, engine, 2)
			for _, r := range quietRules {
				t.Run(r.name, func(t *testing.T) { r.run(newMeeting(t, at, seeds.Simba29)) })
			}
		})
	}
}
