package conformance

import (
	"context"
	"sync"

	"github.com/simba-resp/simba-resp"
)

func requestRules() []rule {
	return []rule{
		{"retry", "every request may be repeated", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", long, sec)
			for range 3 {
				if o := s.acquire(m, "a", long, sec); o.Status != simba.StatusRenewed || o.Owner != "a" || o.Token != a.Token {
					tc.t.Errorf("ACQUIRE of the owner: %s; want renewed with the same token", show(o))
				}
			}
			if x, o := s.acquireWait(simba.AcquireRequest{Mutex: m, Contender: "a", TTL: long}); x != nil || o.Status != simba.StatusRenewed || o.Token != a.Token {
				tc.t.Errorf("ACQUIRE … WAIT of the owner: %s; want renewed with the same token", show(o))
			}
			if o := s.acquireNoQueue(m, "a", long, 0); o.Status != simba.StatusRenewed || o.Token != a.Token {
				tc.t.Errorf("ACQUIRE … NOQUEUE of the owner: %s; want renewed with the same token", show(o))
			}
			for range 2 {
				if o := s.guard(m, "a", long, 0, a.Token); o.Status != simba.StatusRenewed || o.Token != a.Token {
					tc.t.Errorf("GUARD repeated: %s; want renewed with the same token", show(o))
				}
			}
			tc.equal("queue while only the owner asks", s.queue(m), nil)
			if !s.release(m, "a") || s.release(m, "a") {
				tc.t.Error("RELEASE and its repetition did not return 1 and 0")
			}
			if b := s.mustAcquire(m, "a", long, 0); b.Token == a.Token {
				tc.t.Error("the next tenure has the token of the previous tenure")
			}
		}},
		{"retry", "a queued contender that asks again keeps its queue entry", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			a := s.mustAcquire(m, "a", long, long)
			for i, c := range []string{"b", "c", "d"} {
				o := s.mustQueue(m, c, sec)
				if o.Position != i+1 || o.Owner != "a" || o.Token != a.Token || o.TTL <= 0 || o.Transition <= long {
					tc.t.Errorf("ACQUIRE of %s: %s; want queued at the next position, with a as the owner",
						c, show(o))
				}
			}
			for i, c := range []string{"b", "c", "d", "b"} {
				if o := s.mustQueue(m, c, sec); o.Position != i%3+1 {
					tc.t.Errorf("ACQUIRE of %s repeated: %s; want its position unchanged", c, show(o))
				}
			}
			tc.equal("queue", s.queue(m), []string{"b", "c", "d"})
		}},
		{"retry", "NOQUEUE adds no queue entry and keeps an existing one", 0, func(tc *testCase) {
			s, m := tc.held()
			if o := s.acquireNoQueue(m, "b", sec, 0); o.Status != simba.StatusBusy || o.Position != 0 || o.Owner != "a" {
				tc.t.Errorf("ACQUIRE … NOQUEUE: %s; want busy with a as the owner and no position", show(o))
			}
			tc.equal("queue", s.queue(m), nil)
			s.mustQueue(m, "b", sec)
			if o := s.acquireNoQueue(m, "b", sec, 0); o.Status != simba.StatusBusy || o.Position != 1 {
				tc.t.Errorf("ACQUIRE … NOQUEUE of a queued contender: %s; want busy at position 1", show(o))
			}
			tc.equal("queue", s.queue(m), []string{"b"})
		}},
		{"retry", "of concurrent requests of one contender, one acquires and the others renew", 0, func(tc *testCase) {
			s, m := tc.server(), tc.mutex()
			acquireAtOnce(tc, m, s)
		}},
		{"9", "an owner is not in the queue", 0, func(tc *testCase) {
			s, m := tc.held()
			s.mustQueue(m, "b", long)
			s.mustRelease(m, "a")
			s.mustAcquire(m, "b", long, 0)
			tc.equal("queue", s.queue(m), nil)
			if o := s.owner(m); o.Waiters != 0 {
				tc.t.Errorf("OWNER reports %d waiters, want 0", o.Waiters)
			}
		}},
		{"9", "RELEASE by a waiter leaves the queue", 0, func(tc *testCase) {
			s, m := tc.held()
			s.mustQueue(m, "b", sec)
			s.mustQueue(m, "c", sec)
			if s.release(m, "b") {
				tc.t.Error("RELEASE of the waiter b returned 1, want 0")
			}
			tc.equal("queue", s.queue(m), []string{"c"})
			if o := s.mustQueue(m, "b", sec); o.Position != 2 {
				tc.t.Errorf("ACQUIRE of b after it had left the queue: %s; want queued at position 2", show(o))
			}
		}},
	}
}

// acquireAtOnce sends many concurrent requests of one contender through all servers.
func acquireAtOnce(tc *testCase, m string, servers ...*server) {
	tc.t.Helper()
	const requests = 16
	outcomes := make([]simba.Outcome, requests)
	errs := make([]error, requests)
	var all sync.WaitGroup
	for i := range requests {
		s := servers[i%len(servers)]
		all.Go(func() {
			outcomes[i], _, errs[i] = s.b.Acquire(context.Background(), simba.AcquireRequest{Mutex: m, Contender: "a", TTL: renewable})
			if errs[i] == nil {
				errs[i] = s.b.Commit(outcomes[i].Seq)
			}
		})
	}
	all.Wait()
	acquired := 0
	for i, o := range outcomes {
		switch {
		case errs[i] != nil:
			tc.t.Fatalf("one of the concurrent ACQUIREs of a: %v; want no error", errs[i])
		case o.Status == simba.StatusAcquired:
			acquired++
		case o.Status != simba.StatusRenewed:
			tc.t.Errorf("one of the concurrent ACQUIREs of a: %s; want acquired or renewed", show(o))
		}
		if o.Owner != "a" || o.Token != outcomes[0].Token {
			tc.t.Errorf("one of the concurrent ACQUIREs of a: %s; want a as the owner with the token of the first reply, %d",
				show(o), outcomes[0].Token)
		}
	}
	if acquired != 1 {
		tc.t.Errorf("%d of the concurrent ACQUIREs of a returned acquired, want 1", acquired)
	}
	for _, s := range servers {
		tc.equal("queue while only the owner asks", s.queue(m), nil)
	}
	servers[0].mustRelease(m, "a")
	if o := servers[0].owner(m); o.Owner != "" {
		tc.t.Errorf("OWNER after one release: %+v; want no owner", o)
	}
}
