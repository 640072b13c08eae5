package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/simba-resp/simba-resp"
)

func listingRules() []rule {
	return []rule{
		{"7", "QUEUE lists the waiters in order, and whether they are blocked", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			if q := s.queue(m); len(q) != 0 {
				tc.t.Errorf("QUEUE of a new mutex: %v; want nothing", q)
			}
			s.mustAcquire(m, "a", long, 0)
			s.block(m, "b", long, 0)
			s.mustQueue(m, "c", sec)
			s.block(m, "d", long, 0)
			pause(20 * ms)
			q := s.queueEntries(m, 10)
			tc.equal("queue", s.queue(m), []string{"b", "c", "d"})
			for i, e := range q {
				if e.Blocked != (e.Contender != "c") || e.Waiting < 15*ms || e.Waiting > patience {
					tc.t.Errorf("QUEUE entry %+v: want only c not blocked, and a waiting time of 15 ms or more", e)
				}
				if i > 0 && e.Waiting > q[i-1].Waiting+rounding {
					tc.t.Errorf("QUEUE: %s waits longer than its predecessor: %+v", e.Contender, q)
				}
			}
			if q := s.queueEntries(m, 2); len(q) != 2 || q[1].Contender != "c" {
				tc.t.Errorf("QUEUE of the first two waiters: %+v; want b and c", q)
			}
			if o := s.owner(m); o.Waiters != 3 {
				tc.t.Errorf("OWNER reports %d waiters, want 3", o.Waiters)
			}
		}},
		{"scan", "SCAN returns every mutex that is held or waited for", 0, func(tc *testCase) {
			s := tc.server()
			var held []string
			for range 25 {
				m := tc.mutex()
				s.mustAcquire(m, "a", long, 0)
				held = append(held, m)
			}
			slices.Sort(held)
			contended := held[7:9]
			s.block(contended[0], "b", long, 0)
			s.mustQueue(contended[1], "b", sec)
			mine := func(m string) bool { return strings.HasPrefix(m, "m-"+tc.prefix+"-") }
			for _, count := range []int{0, 1, 5, 1000} {
				tc.equal(fmt.Sprintf("SCAN with count %d", count), scan(s, simba.ScanRequest{Count: count, Match: mine}), held)
			}
			tc.equal("SCAN of held mutexes", scan(s, simba.ScanRequest{Match: mine, Held: true}), held)
			tc.equal("SCAN of contended mutexes", scan(s, simba.ScanRequest{Match: mine, Contended: true}), contended)
			tc.equal("SCAN for one mutex", scan(s, simba.ScanRequest{Match: func(m string) bool { return m == held[3] }}), held[3:4])
		}},
		{"scan", "SCAN does not return a free mutex without waiters", 0, func(tc *testCase) {
			s, m := tc.held()
			s.mustRelease(m, "a")
			expired := tc.mutex()
			s.mustAcquire(expired, "a", long, 0)
			s.expire(expired, "a", 50*ms)
			for _, held := range []bool{true, false} {
				if got := scan(s, simba.ScanRequest{Match: func(n string) bool { return n == m || n == expired }, Held: held}); len(got) != 0 {
					tc.t.Errorf("SIMBA.SCAN with held %v: %v; want none of the released and expired mutexes",
						held, got)
				}
			}
		}},
		{"scan", "SCAN finds every mutex that exists all the time, while others come and go", 0, func(tc *testCase) {
			s := tc.server()
			var stay []string
			for range 10 {
				m := tc.mutex()
				s.mustAcquire(m, "a", long, 0)
				stay = append(stay, m)
			}
			slices.Sort(stay)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				// The number is limited, since mutexes stay in the store and the scan must end.
				const others = 200
				for i := 0; ; i = (i + 1) % others {
					select {
					case <-stop:
						return
					default:
					}
					m := fmt.Sprintf("come-and-go-%s-%d", tc.prefix, i)
					_, _, _ = s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: m, Contender: "a", TTL: sec})
					_, _, _ = s.b.Release(context.Background(), simba.ReleaseRequest{Mutex: m, Contender: "a"})
				}
			}()
			for range 5 {
				tc.equal("scan", scan(s, simba.ScanRequest{Count: 3, Match: func(m string) bool { return slices.Contains(stay, m) }}), stay)
			}
			close(stop)
			<-stopped
		}},
		{"names", "different names are different mutexes and contenders", 0, func(tc *testCase) {
			s := tc.server()
			for i, pair := range [][2]string{
				{"M", "m"}, {"é", "e"}, {"ß", "ss"}, {"a", "à"}, {"\u00e9", "e\u0301"}, {"x/y", "x%2Fy"}, {"x%2Fy", "x%252Fy"}, {"..", "."},
				{"a/../b", "b"}, {"*", "?"}, {"[a]", "a"}, {`a\b`, `a\\b`}, {"'", "''"}, {`"`, "`"}, {"%s", "%d"}, {"日本", "日木"}, {"😀", "😁"}, {"$1", ":1"}, {"-", "--"}, {"simba:x", "x"},
			} {
				m := [2]string{pair[0], pair[1]}
				if i > 0 { // all pairs but the first are suffixes of a unique name
					m = [2]string{tc.mutex() + pair[0], ""}
					m[1] = strings.TrimSuffix(m[0], pair[0]) + pair[1]
				}
				var served [2]bool
				for k, name := range m {
					o, _, err := s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: name, Contender: pair[k], TTL: long, NoQueue: true})
					var refused *simba.NameError
					if errors.As(err, &refused) {
						tc.t.Logf("%q: %v", name, err)
						continue
					}
					served[k] = true
					s.commit(o.Seq, err)
					if o.Status != simba.StatusAcquired || o.Owner != pair[k] {
						tc.t.Errorf("ACQUIRE of %q by %q: %s; want acquired", name, pair[k], show(o))
					}
					if got := s.owner(name); got.Owner != pair[k] {
						tc.t.Errorf("OWNER of %q: %q, want %q", name, got.Owner, pair[k])
					}
					if got := scan(s, simba.ScanRequest{Match: func(n string) bool { return n == name }}); !slices.Equal(got, []string{name}) {
						tc.t.Errorf("SIMBA.SCAN for %q: %q; want only that mutex", name, got)
					}
				}
				for k, name := range m {
					if !served[k] {
						continue
					}
					if got := s.owner(name); got.Owner != pair[k] {
						tc.t.Errorf("OWNER of %q, after requests for %q: %q, want %q", name, m[1-k], got.Owner, pair[k])
					}
					if served[1-k] && s.release(name, pair[1-k]) {
						tc.t.Errorf("RELEASE of %q by %q returned 1, but %q is the owner", name, pair[1-k], pair[k])
					}
					s.mustRelease(name, pair[k])
				}
			}
		}},
		{"names", "the longest names are accepted or refused, never truncated", 0, func(tc *testCase) {
			s := tc.server()
			fill := func(begin string, n int) string { return begin + strings.Repeat("x", n-len(begin)) }
			m := fill(tc.mutex(), simba.MaxMutexLen)
			a, b := fill("c-1-", simba.MaxContenderLen-1)+"a", fill("c-1-", simba.MaxContenderLen-1)+"b"
			o, _, err := s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: m, Contender: a, TTL: long})
			if refused := (*simba.NameError)(nil); errors.As(err, &refused) {
				if refused.Argument != "mutex" && refused.Argument != "contender" || refused.Problem == "" {
					tc.t.Errorf("ACQUIRE with the longest names: %v; want an argument and a problem in the error", err)
				}
				return
			}
			s.commit(o.Seq, err)
			s.subscribeContender(m, b)
			if o := s.mustQueue(m, b, long); o.Owner != a {
				tc.t.Errorf("ACQUIRE of the second long name: %s; want the first as the owner", show(o))
			}
			tc.equal("queue", s.queue(m), []string{b})
			s.mustRelease(m, a)
			s.awaitNotices(simba.ContenderChannel(m, b), simba.ReleasedNotice(a))
			s.mustAcquire(m, b, long, 0)
			if got := s.owner(m).Owner; got != b {
				tc.t.Errorf("OWNER reports %q, want the second long name", got)
			}
			s.mustRelease(m, b)
		}},
		{"close", "Stats counts the tenures, renewals, handoffs and waiters", 0, func(tc *testCase) {
			s, m := tc.held()
			s.guard(m, "a", long, 0, 0)
			b := s.block(m, "b", long, 0)
			if n := s.b.Stats().Blocked; n != 1 {
				tc.t.Errorf("Stats reports %d blocked waiters, want 1", n)
			}
			s.mustRelease(m, "a")
			b.granted()
			s.breakTenure(m, "")
			got := s.b.Stats()
			if got.Acquired != 2 || got.Renewed != 1 || got.Released != 1 || got.Broken != 1 || got.Handoffs != 1 || got.Blocked != 0 {
				tc.t.Errorf("Stats: %+v; want 2 acquired, 1 each of renewed, released, broken and handoffs, 0 blocked",
					got)
			}
			// The engine of a cluster begins with leases of earlier tests, which may end meanwhile.
			before := s.b.Stats().Expired
			s.mustAcquire(m, "c", long, 0)
			s.expire(m, "c", 30*ms)
			tc.await("the expiry of c's lease is counted", func() bool { return s.b.Stats().Expired > before })
		}},
	}
}

// scan runs a whole scan and returns the names sorted, without duplicates.
func scan(s *server, r simba.ScanRequest) []string {
	s.tc.t.Helper()
	var names []string
	for range 100_000 {
		page, seq, err := s.b.Scan(context.Background(), r)
		s.commit(seq, err)
		names = append(names, page.Mutexes...)
		if page.Cursor == 0 {
			slices.Sort(names)
			return slices.Compact(names)
		}
		r.Cursor = page.Cursor
	}
	s.tc.t.Fatal("SIMBA.SCAN never returns the cursor 0")
	return nil
}
