package commands

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// withLongestLease runs a test with a site whose engine vouches for leases of 5 s, until the test
// changes longest.
func withLongestLease(t *testing.T, test func(t *testing.T, s *site, longest *atomic.Int64)) {
	synctest.Test(t, func(t *testing.T) {
		var longest atomic.Int64
		longest.Store(int64(5 * time.Second))
		test(t, newSite(t, Config{Backend: newEngine(t), LongestLease: func() time.Duration { return time.Duration(longest.Load()) }}), &longest)
	})
}

func wantTooLong(t *testing.T, command, reply, longest string) {
	t.Helper()
	if !strings.Contains(reply, "-TOOLONG "+longest+" ms is the longest lease") || !strings.Contains(reply, "zookeeper-session-timeout") {
		t.Errorf("%s gets %q, want an error that names %s ms and zookeeper-session-timeout", command, reply, longest)
	}
}

func TestLeaseThatTheEngineDoesNotVouchForIsRefused(t *testing.T) {
	withLongestLease(t, func(t *testing.T, s *site, longest *atomic.Int64) {
		p := s.dial()
		for _, command := range []string{
			"SIMBA.ACQUIRE m a 60000", "SIMBA.ACQUIRE m a 4000 TRANSITION 1001", "SIMBA.ACQUIRE m a 5001 NOQUEUE",
			"SIMBA.ACQUIRE m a 5001 WAIT 1000", "SIMBA.ACQUIRE m a 5001 SESSION", "SIMBA.GUARD m a 5001", "SIMBA.GUARD m a 5000 TRANSITION 1",
		} {
			wantTooLong(t, command, p.do(command), "5000")
		}
		p.do("MULTI")
		p.do("SIMBA.ACQUIRE m a 5001")
		wantTooLong(t, "EXEC", p.do("EXEC"), "5000")
		if got := p.do("SIMBA.OWNER m"); !strings.HasPrefix(got, "*-1") && !strings.HasPrefix(got, "_") && !strings.HasPrefix(got, "$-1") {
			t.Errorf("after the refusals OWNER replies %q, want no owner", got)
		}
		if got := status(p.do("SIMBA.ACQUIRE m a 4000 TRANSITION 1000")); got != "acquired" {
			t.Errorf("the longest lease gets %s, want acquired", got)
		}
		if info := infoFields(t, p.do("INFO simba")); info["longest_lease_ms"] != "5000" {
			t.Errorf("INFO shows longest_lease_ms:%s, want 5000", info["longest_lease_ms"])
		}
		longest.Store(int64(3 * time.Second)) // a renegotiated session
		time.Sleep(time.Second)
		wantTooLong(t, "a renewal", p.do("SIMBA.GUARD m a 4000 TRANSITION 1000"), "3000")
		if left := p.do("PTTL simba:{m}"); left != ":4000\r\n" {
			t.Errorf("after the refused renewal the lease has %q, want that of before: 4000 ms", left)
		}
		if got := status(p.do("SIMBA.GUARD m a 3000")); got != "renewed" {
			t.Errorf("a renewal with a shorter lease gets %s, want renewed", got)
		}
	})
}

func TestWaiterGetsNoLeaseThatTheEngineNoLongerVouchesFor(t *testing.T) {
	withLongestLease(t, func(t *testing.T, s *site, longest *atomic.Int64) {
		a, b, c := s.dial(), s.dial(), s.dial()
		a.do("SIMBA.ACQUIRE m a 2000")
		b.send("SIMBA.ACQUIRE m b 4000 WAIT 0")
		synctest.Wait()
		c.send("SIMBA.ACQUIRE m c 2000 WAIT 0")
		synctest.Wait()
		longest.Store(int64(3 * time.Second))
		a.do("SIMBA.RELEASE m a")
		wantTooLong(t, "the first waiter", b.reply(), "3000")
		if got := status(c.reply()); got != "acquired" {
			t.Errorf("the next waiter gets %s, want acquired", got)
		}
	})
}

func TestInfoOfAnEngineWithoutALimitShowsNone(t *testing.T) {
	p := newSite(t, Config{Backend: newEngine(t)}).dial()
	if info := infoFields(t, p.do("INFO simba")); info["longest_lease_ms"] != "" {
		t.Errorf("INFO shows longest_lease_ms:%s, want none", info["longest_lease_ms"])
	}
	if got := status(p.do("SIMBA.ACQUIRE m a 86400000 TRANSITION 86400000")); got != "acquired" {
		t.Errorf("the longest lease gets %s, want acquired", got)
	}
}
