package backendtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

const (
	// slack is by how much an answer may be later than its deadline on a busy machine. An answer
	// that heeds no deadline never comes, since the network heals after it.
	slack = 8 * sec
	// recovery is how soon after the network has healed requests must be served.
	recovery = 5 * sec
)

// faults are the ways in which a store cannot be reached.
var faults = []struct {
	name string
	cut  func(*stores.Link)
}{
	{"refuses connections", (*stores.Link).Refuse},
	{"is cut off", (*stores.Link).Blackhole},
	{"is heard no more", (*stores.Link).DropReplies},
}

func outageRules() (rules []rule) {
	for _, f := range faults {
		rules = append(rules,
			rule{"outage", "while the store " + f.name + " every request is answered in time, and served soon after", link, func(w *world) {
				unavailable(w, f.cut)
			}},
			rule{"outage", "while the store " + f.name + " waiters go on waiting, and are served in order after it", link, func(w *world) {
				s, m := w.server(), w.mutex()
				s.take(m, "a", long, 0)
				b, c := s.block(m, "b", long, 0), s.block(m, "c", long, 0)
				f.cut(w.e.Link)
				w.during(w.e.Timeout+500*ms, "nobody is woken", func() bool { return !b.isWoken() && !c.isWoken() })
				w.e.Link.Heal()
				if o := s.ownerAgain(m); o.Owner != "a" {
					w.t.Fatalf("owner %+v", o)
				}
				s.giveUp(m, "a")
				b.granted()
				if c.isWoken() {
					w.t.Error("c was woken too")
				}
				s.giveUp(m, "b")
				c.granted()
			}},
			rule{"outage", "a lease that ends while the store " + f.name + " is handed on after it", link, func(w *world) {
				s := w.server()
				w.withLease(sec, func(m string, lease time.Duration) bool {
					asked := time.Now()
					if _, inTime := s.takeIfInTime(m, "a", lease, 0); !inTime {
						return false
					}
					b := s.blockIfInTime(m, "b")
					if b == nil {
						return false
					}
					f.cut(w.e.Link)
					// The waiter may have been granted the mutex before.
					if time.Since(asked) >= lease-rounding {
						w.e.Link.Heal()
						s.ownerAgain(m)
						return false
					}
					w.during(lease+500*ms, "nobody is said to own what cannot be confirmed", func() bool { return !b.isWoken() })
					w.e.Link.Heal()
					b.granted()
					return true
				})
			}},
			rule{"outage", "a wait that ends while the store " + f.name + " is answered in time, and holds up nobody after it", link, func(w *world) {
				abandonedInOutage(w, f.cut)
			}},
		)
	}
	return append(rules,
		rule{"outage", "a caller that does not wait so long is answered when it gives up", link, func(w *world) {
			w.e.Timeout = time.Minute
			s, m := w.server(), w.mutex()
			s.take(m, "a", long, 0)
			w.e.Link.Blackhole()
			ctx, cancel := context.WithTimeout(context.Background(), 100*ms)
			defer cancel()
			asked := time.Now()
			_, _, err := s.b.Acquire(ctx, simba.AcquireRequest{Mutex: m, Contender: "b", TTL: sec})
			if took := time.Since(asked); took > w.e.Timeout {
				w.t.Errorf("answered after %v", took)
			}
			w.mustBeUnavailable("acquire", err)
		}},
		rule{"outage", "connections that break are made again, and waiters do not notice", link, func(w *world) {
			s, m := w.server(), w.mutex()
			s.take(m, "a", long, 0)
			b, c := s.block(m, "b", long, 0), s.block(m, "c", long, 0)
			for range 3 {
				w.e.Link.Reset()
				broken := time.Now()
				s.ownerAgain(m)
				if took := time.Since(broken); took > recovery {
					w.t.Errorf("served after %v", took)
				}
			}
			w.equal("queue", s.queue(m), []string{"b", "c"})
			s.giveUp(m, "a")
			b.granted()
			s.giveUp(m, "b")
			c.granted()
		}},
		rule{"outage", "a subscription outlives an outage", link | shared, func(w *world) {
			one, two := w.pair()
			m := w.mutex()
			one.subscribe(simba.MutexChannel(m))
			w.e.Link.Refuse()
			pass(200 * ms)
			w.e.Link.Heal()
			hearsTenures(w, one, two, m)
		}},
		rule{"outage", "a subscription that was asked for in an outage is made good after it", link | shared | direct, func(w *world) {
			one, two := w.server(), w.directServer()
			m := w.mutex()
			w.e.Link.Blackhole()
			two.take(m, "a", long, 0) // so it is owned when one sees it first
			one.radio.subscribe(simba.MutexChannel(m))
			asked := time.Now()
			_, err := one.b.Subscribed(context.Background(), simba.MutexChannel(m), false)
			if took := time.Since(asked); took > w.e.Timeout+slack {
				w.t.Errorf("answered after %v (%v)", took, err)
			}
			w.e.Link.Heal()
			hearsTenures(w, one, two, m)
		}},
		rule{"9", "a server that is closed in an outage leaves no goroutine behind", link, func(w *world) {
			s, m := w.server(), w.mutex()
			s.take(m, "a", long, 0)
			s.block(m, "b", long, 0)
			s.subscribe(simba.MutexChannel(m))
			w.e.Link.Blackhole()
			asked := time.Now()
			s.close()
			if took := time.Since(asked); took > w.e.Timeout+2*slack {
				w.t.Errorf("closed after %v", took)
			}
		}},
	)
}

// mustBeUnavailable checks that a request was refused as the wire wants it.
func (w *world) mustBeUnavailable(what string, err error) {
	w.t.Helper()
	var unavailable *simba.UnavailableError
	if !errors.As(err, &unavailable) {
		w.t.Errorf("%s: %v, not an UnavailableError", what, err)
		return
	}
	name, _, _ := strings.Cut(w.e.Name, "-")
	if unavailable.Engine != name || unavailable.Err == nil || strings.Contains(err.Error(), "\n") {
		w.t.Errorf("%s: %q", what, err)
	}
}

// unavailable has every method ask a store that cannot be reached, and again when it
// can be.
func unavailable(w *world, cut func(*stores.Link)) {
	s, m := w.server(), w.mutex()
	token := s.take(m, "owner", long, 0).Token
	cut(w.e.Link)
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			asked := time.Now()
			err := c.do(context.Background(), s.b, m)
			if took := time.Since(asked); took > w.e.Timeout+slack {
				w.t.Errorf("%s: answered after %v", c.name, took)
			}
			w.mustBeUnavailable(c.name, err)
		})
	}
	all.Wait()
	s.b.Stats()
	s.history(simba.HistoryRequest{Mutex: m})

	w.e.Link.Heal()
	healed := time.Now()
	s.acquireAgain(w.mutex(), "a", long)
	each := func() {
		for _, c := range calls {
			s.again(c.name, func(ctx context.Context) (simba.Seq, error) { return 0, c.do(ctx, s.b, m) })
		}
	}
	each()
	took := time.Since(healed)
	asked := time.Now()
	each()
	if usual := time.Since(asked); took-usual > recovery {
		w.t.Errorf("served %v after the network had healed; the same requests take %v now", took, usual)
	}
	if o := s.owner(m); o.Owner != "owner" || o.Token != token {
		w.t.Errorf("the owner is %+v, its token was %d", o, token)
	}
	if o := s.guard(m, "owner", long, 0, token); o.Status != simba.StatusRenewed || o.Token != token {
		w.t.Errorf("the owner guards: %s", show(o))
	}
}

// abandonedInOutage ends two waits in an outage, one whose time ran out and one whose
// client is gone. Their leases are short: if the store grants them unasked, that is
// how long the next waits.
func abandonedInOutage(w *world, cut func(*stores.Link)) {
	s, m := w.server(), w.mutex()
	s.take(m, "a", long, 0)
	b := s.block(m, "b", 2*sec, 0)
	c := s.block(m, "c", 2*sec, 0)
	d := s.block(m, "d", long, 0)
	cut(w.e.Link)
	for x, why := range map[*waiter]simba.EndReason{b: simba.EndTimeout, c: simba.EndGone} {
		x.ended = true
		asked := time.Now()
		o, err := x.ticket.End(why)
		if took := time.Since(asked); took > w.e.Timeout+slack {
			w.t.Errorf("%s: answered after %v", x.name, took)
		}
		switch {
		case err != nil:
			w.mustBeUnavailable(x.name, err)
		case o.Status == simba.StatusAcquired:
			w.t.Errorf("%s: %s", x.name, show(o))
		}
	}
	w.e.Link.Heal()
	if o := s.ownerAgain(m); o.Owner != "a" {
		w.t.Fatalf("owner %+v", o)
	}
	s.giveUp(m, "a")
	d.granted()
}

// hearsTenures waits until one has heard of a tenure that two's client has.
func hearsTenures(w *world, one, two *server, m string) {
	w.t.Helper()
	channel := simba.MutexChannel(m)
	// A server that looks now and then must find it owned, and find it free before: one
	// owner at two looks may be one tenure.
	heard := func() bool {
		for range 20 {
			if slices.Contains(one.radio.heardOn(channel), "acquired@@a") {
				return true
			}
			pass(5 * ms)
		}
		return false
	}
	w.await("the other's tenures are heard", func() bool {
		two.acquireAgain(m, "a", long)
		if heard() {
			return true
		}
		two.again("release", func(ctx context.Context) (simba.Seq, error) {
			_, seq, err := two.b.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: "a"})
			return seq, err
		})
		return heard()
	})
	for _, got := range one.radio.heardOn(channel) {
		if got != "acquired@@a" && got != "released@@a" {
			w.t.Errorf("heard %q", got)
		}
	}
}
