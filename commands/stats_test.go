package commands

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// If a counter falls, a metrics system assumes that the server was restarted, and computes a huge
// rate.
func TestNoCounterOfACommandGoesBackwards(t *testing.T) {
	x := newSite(t, Config{}).x
	e := x.table.named([]byte("ping"))
	for range 1000 {
		e.tally.add(time.Microsecond, false)
	}
	var failing sync.WaitGroup
	var stop atomic.Bool
	failing.Go(func() {
		for !stop.Load() {
			e.tally.add(time.Microsecond, true)
		}
	})
	defer failing.Wait()
	defer stop.Store(true)
	var last CommandStats
	for range 5000 {
		now := x.Stats().Commands[0]
		if now.Succeeded != 1000 || now.Failed < last.Failed || now.Calls.Count() < last.Calls.Count() {
			t.Fatalf("Stats returned %+v after %+v: a counter fell, or Succeeded is not 1000", now, last)
		}
		last = now
	}
}

func TestTheSumOfLongWaitsDoesNotOverflow(t *testing.T) {
	x := newSite(t, Config{}).x
	for range 200_000 {
		x.waited.add(24 * time.Hour) // 548 years in all
	}
	const sum = 200_000 * 24 * 3600 * 1_000_000 // µs
	if got := x.Stats().Waits; got.Count() != 200_000 || got.Micros != sum {
		t.Errorf("Stats returned %d waits of %d µs in all, want 200000 waits of %d µs in all", got.Count(), got.Micros, uint64(sum))
	}
}

// The server's watchdog sends PING without a login. It is no client, so the statistics omit it.
func TestThePingOfTheWatchdogIsNotCounted(t *testing.T) {
	s := newSite(t, Config{Users: newUsersFile(t, "user default on >sesam ~* &* +@all").open()})
	for range 3 {
		if err := s.x.server.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if now := s.x.Stats(); len(now.Commands) > 0 || len(now.Errors) > 0 {
		t.Errorf("the PING was counted: commands %+v, errors %+v", now.Commands, now.Errors)
	}
	p := s.dial()
	p.expect("AUTH sesam", ok)
	if log := p.do("ACL LOG"); log != "*0\r\n" {
		t.Errorf("ACL LOG has %q, want nothing", log)
	}
}
