package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

var (
	// answerSlack is how long after its deadline an answer may come. The slack may be long: without
	// a deadline no answer would come, since the network heals only after the answers.
	answerSlack = need.AtMost(8 * sec)
	// recoveryLimit is how soon requests must succeed after the network has healed.
	recoveryLimit = need.AtMost(5 * sec)
)

// outages are the ways in which a store cannot be reached.
var outages = []struct {
	name string
	cut  func(*stores.Link)
}{
	{"refuses connections", (*stores.Link).Refuse},
	{"is cut off", (*stores.Link).Blackhole},
	{"drops replies", (*stores.Link).DropReplies},
}

func outageRules() (rules []rule) {
	for _, f := range outages {
		rules = append(rules,
			rule{"outage", "while the store " + f.name + ", every request is answered in time, and succeeds soon afterwards", link, func(tc *testCase) {
				checkUnavailable(tc, f.cut)
			}},
			rule{"outage", "while the store " + f.name + ", waiters keep waiting, and are served in order afterwards", link, func(tc *testCase) {
				s, m := tc.held()
				b, c := s.block(m, "b", long, 0), s.block(m, "c", long, 0)
				f.cut(tc.engine.Link)
				tc.during(tc.engine.Timeout+500*ms, "nobody is woken", func() bool { return !b.isWoken() && !c.isWoken() })
				tc.engine.Link.Heal()
				if o := s.ownerAgain(m); o.Owner != "a" {
					tc.t.Fatalf("OWNER after the outage: %+v; want a", o)
				}
				s.mustRelease(m, "a")
				b.granted()
				if c.isWoken() {
					tc.t.Error("c was woken, but only b, the first waiter, should be")
				}
				s.mustRelease(m, "b")
				c.granted()
			}},
			rule{"outage", "a lease that ends while the store " + f.name + " is handed off afterwards", link, func(tc *testCase) {
				s := tc.server()
				tc.withLease(sec, func(m string, lease time.Duration) bool {
					asked := time.Now()
					b := s.blockBehind(s, m, lease)
					if b == nil {
						return false
					}
					f.cut(tc.engine.Link)
					// If a's lease has ended by now, b may have got the mutex before the outage.
					if time.Since(asked) >= lease-rounding {
						tc.engine.Link.Heal()
						s.ownerAgain(m)
						return false
					}
					tc.during(lease+500*ms, "nobody is woken without a confirmation", func() bool { return !b.isWoken() })
					tc.engine.Link.Heal()
					b.granted()
					return true
				})
			}},
			rule{"outage", "a wait that ends while the store " + f.name + " is answered in time, and delays nobody afterwards", link, func(tc *testCase) {
				checkAbandoned(tc, f.cut)
			}},
		)
	}
	return append(rules,
		rule{"outage", "a request ends when its context does", link, func(tc *testCase) {
			tc.engine.Timeout = time.Minute
			s, m := tc.held()
			tc.engine.Link.Blackhole()
			ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
			defer cancel()
			asked := time.Now()
			_, _, err := s.b.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: "b", TTL: sec})
			if took := time.Since(asked); took > need.AtMost(tc.engine.Timeout) {
				tc.t.Errorf("ACQUIRE with a deadline was answered after %v, later than the engine's timeout", took)
			}
			tc.mustBeUnavailable("acquire", err)
		}},
		rule{"outage", "broken connections are replaced, and waiters keep waiting", link, func(tc *testCase) {
			s, m := tc.held()
			b, c := s.block(m, "b", long, 0), s.block(m, "c", long, 0)
			for range 3 {
				tc.engine.Link.Reset()
				broken := time.Now()
				s.ownerAgain(m)
				if took := time.Since(broken); took > recoveryLimit {
					tc.t.Errorf("OWNER succeeded only %v after the connections broke, too late",
						took)
				}
			}
			tc.equal("queue", s.queue(m), []string{"b", "c"})
			s.mustRelease(m, "a")
			b.granted()
			s.mustRelease(m, "b")
			c.granted()
		}},
		rule{"outage", "a subscription outlives an outage", link | shared, func(tc *testCase) {
			one, two, m := tc.pair()
			one.subscribe(simba.MutexChannel(m))
			tc.engine.Link.Refuse()
			pause(200 * ms)
			tc.engine.Link.Heal()
			awaitTenures(tc, one, two, m)
		}},
		rule{"outage", "a subscription requested in an outage works afterwards", link | shared | direct, func(tc *testCase) {
			one, two := tc.server(), tc.directServer()
			m := tc.mutex()
			tc.engine.Link.Blackhole()
			two.mustAcquire(m, "a", long, 0) // so that server one first reads an owned mutex
			one.broker.subscribe(simba.MutexChannel(m))
			asked := time.Now()
			_, err := one.b.Subscribed(context.Background(), simba.MutexChannel(m), false)
			if took := time.Since(asked); took > tc.engine.Timeout+answerSlack {
				tc.t.Errorf("Subscribed returned the error %v after %v, later than the engine's timeout", err, took)
			}
			tc.engine.Link.Heal()
			awaitTenures(tc, one, two, m)
		}},
		rule{"9", "a server closed in an outage leaves no goroutine", link, func(tc *testCase) {
			s, m := tc.held()
			s.block(m, "b", long, 0)
			s.subscribe(simba.MutexChannel(m))
			tc.engine.Link.Blackhole()
			asked := time.Now()
			s.close()
			if took := time.Since(asked); took > tc.engine.Timeout+2*answerSlack {
				tc.t.Errorf("Close returned after %v, later than the engine's timeout", took)
			}
		}},
	)
}

// mustBeUnavailable checks that err is an UnavailableError of the engine, in one line.
func (tc *testCase) mustBeUnavailable(what string, err error) {
	tc.t.Helper()
	e := &simba.UnavailableError{}
	_ = errors.As(err, &e)
	tc.mustName(what, err, "an UnavailableError", e.Engine, e.Err)
}

// mustName checks that an error has one line, names the engine, and has a cause.
func (tc *testCase) mustName(what string, err error, kind, engine string, cause error) {
	tc.t.Helper()
	name, _, _ := strings.Cut(tc.engine.Name, "-")
	if engine != name || cause == nil || strings.Contains(err.Error(), "\n") {
		tc.t.Errorf("%s: %v; want %s of one line that names the engine %s, with a cause", what, err, kind, name)
	}
}

// checkUnavailable calls every method during an outage, and again afterwards.
func checkUnavailable(tc *testCase, cut func(*stores.Link)) {
	s, m := tc.server(), tc.mutex()
	token := s.mustAcquire(m, "owner", long, 0).Token
	cut(tc.engine.Link)
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			asked := time.Now()
			err := c.do(context.Background(), s.b, m)
			if took := time.Since(asked); took > tc.engine.Timeout+answerSlack {
				tc.t.Errorf("%s: answered after %v, later than the engine's timeout", c.name, took)
			}
			tc.mustBeUnavailable(c.name, err)
		})
	}
	all.Wait()
	s.b.Stats()
	s.history(simba.HistoryRequest{Mutex: m})

	tc.engine.Link.Heal()
	healed := time.Now()
	s.acquireAgain(tc.mutex(), "a", long)
	each := func() {
		for _, c := range calls {
			s.untilServed(c.name, func(ctx context.Context) (simba.Seq, error) { return 0, c.do(ctx, s.b, m) })
		}
	}
	each()
	took := time.Since(healed)
	asked := time.Now()
	each()
	if usual := time.Since(asked); took-usual > recoveryLimit {
		tc.t.Errorf("requests succeeded only %v after the network had healed; later they took %v", took, usual)
	}
	if o := s.owner(m); o.Owner != "owner" || o.Token != token {
		tc.t.Errorf("OWNER after the outage: %+v; want the owner with its token, %d", o, token)
	}
	if o := s.guard(m, "owner", long, 0, token); o.Status != simba.StatusRenewed || o.Token != token {
		tc.t.Errorf("GUARD of the owner after the outage: %s; want renewed", show(o))
	}
}

// checkAbandoned ends two waits in an outage: one by a timeout, one by a disconnect. The store may
// grant both waiters their leases all the same. These leases are short, since the next waiter waits
// for their end.
func checkAbandoned(tc *testCase, cut func(*stores.Link)) {
	s, m := tc.held()
	b := s.block(m, "b", 2*sec, 0)
	c := s.block(m, "c", 2*sec, 0)
	d := s.block(m, "d", long, 0)
	cut(tc.engine.Link)
	for x, why := range map[*waiter]simba.EndReason{b: simba.EndTimeout, c: simba.EndGone} {
		x.ended = true
		asked := time.Now()
		o, err := x.ticket.End(why)
		if took := time.Since(asked); took > tc.engine.Timeout+answerSlack {
			tc.t.Errorf("the end of %s's wait returned after %v, later than the engine's timeout", x.name, took)
		}
		switch {
		case err != nil:
			tc.mustBeUnavailable("the end of "+x.name+"'s wait", err)
		case o.Status == simba.StatusAcquired:
			tc.t.Errorf("the end of %s's wait: %s; want no grant", x.name, show(o))
		}
	}
	tc.engine.Link.Heal()
	if o := s.ownerAgain(m); o.Owner != "a" {
		tc.t.Fatalf("OWNER after the outage: %+v; want a", o)
	}
	s.mustRelease(m, "a")
	d.granted()
}

// awaitTenures waits until server one has published a tenure of a client of server two.
func awaitTenures(tc *testCase, one, two *server, m string) {
	tc.t.Helper()
	channel := simba.MutexChannel(m)
	// A server that polls the store must read the free mutex between two tenures. Otherwise it
	// takes them for one tenure, since the owner is the same.
	heard := func() bool {
		for range 20 {
			if slices.Contains(one.broker.publishedOn(channel), "acquired@@a") {
				return true
			}
			pause(5 * ms)
		}
		return false
	}
	tc.await("server one publishes a tenure of a client of server two", func() bool {
		two.acquireAgain(m, "a", long)
		if heard() {
			return true
		}
		two.releaseAgain(m, "a")
		return heard()
	})
	for _, got := range one.broker.publishedOn(channel) {
		if got != "acquired@@a" && got != "released@@a" {
			tc.t.Errorf("server one published the notice %q, want only acquired@@a and released@@a", got)
		}
	}
}
