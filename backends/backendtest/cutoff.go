package backendtest

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// What holds when one server is cut off from the store and another is not.

func cutOffRules() []rule {
	return []rule{
		{"1", "over a slow network nobody is told of more lease than is left", link | direct, func(w *world) {
			far, near := w.server(), w.directServer()
			for _, how := range []string{"acquired", "renewed", "handed on"} {
				overs := 0
				w.withLease(800*ms, func(m string, lease time.Duration) bool {
					o, over, inTime := w.oversold(far, near, how, m, lease)
					if !inTime || over <= rounding {
						return inTime
					}
					// It may be this test that was held up after the answer; but hardly each time.
					if overs++; overs == 3 {
						w.t.Errorf("%s: another owns it, and a is sure of it for another %v: %s", how, over, show(o))
					}
					return overs == 3
				})
			}
		}},
		{"1", "an owner whose server is cut off keeps its lease to the end", link | direct, func(w *world) {
			far, near := w.server(), w.directServer()
			w.withLease(sec, func(m string, lease time.Duration) bool {
				sent := time.Now()
				a, inTime := far.takeIfInTime(m, "a", lease/2, lease/2)
				if !inTime {
					return false
				}
				w.e.Link.Blackhole()
				w.await("the lease ends", func() bool {
					o := near.try(m, "b", long, 0)
					if o.Status == simba.StatusBusy && (o.Owner != "a" || o.Token != a.Token) && time.Since(sent) < lease-rounding {
						w.t.Errorf("%v after a's lease began: %s", time.Since(sent), show(o))
					}
					return o.Status == simba.StatusAcquired
				})
				if took := time.Since(sent); took < lease-rounding {
					w.t.Errorf("b got it after %v", took)
				}
				w.e.Link.Heal()
				var o simba.Outcome
				far.again("guard", func(ctx context.Context) (_ simba.Seq, err error) {
					o, err = far.b.Guard(ctx, simba.GuardRequest{Mutex: m, Contender: "a", TTL: long})
					return 0, err
				})
				if o.Status != simba.StatusLost || o.Owner != "b" {
					w.t.Errorf("a comes back: %s", show(o))
				}
				if t := far.owner(m); t.Owner != "b" {
					w.t.Errorf("%+v", t)
				}
				return true
			})
		}},
		{"9s", "a waiter whose server is cut off holds up nobody for longer than its lease", link | direct, func(w *world) {
			far, near := w.server(), w.directServer()
			m := w.mutex()
			near.take(m, "a", long, 0)
			x := far.block(m, "x", 2*sec, 0)
			b := near.block(m, "b", 10*sec, 0)
			w.e.Link.Blackhole()
			near.giveUp(m, "a")
			b.awaitWake()
			o := b.end(simba.EndWoken)
			if o.Status != simba.StatusAcquired {
				w.t.Fatalf("%s", show(o))
			}
			sure := time.Now().Add(o.Transition)
			w.e.Link.Heal()
			// x is told that it owns the mutex when b's lease has ended or never, but not now.
			pass(500 * ms)
			if x.isWoken() {
				if o := x.end(simba.EndWoken); o.Status == simba.StatusAcquired && time.Now().Before(sure) {
					w.t.Errorf("x is told while b owns it: %s", show(o))
				}
				return
			}
			near.again("release", func(ctx context.Context) (simba.Seq, error) {
				_, seq, err := near.b.Release(ctx, simba.ReleaseRequest{Mutex: m, Contender: "b"})
				return seq, err
			})
			x.granted()
		}},
		{"outage", "a request that was given up and arrives late harms no owner", link | direct, func(w *world) {
			far, near := w.server(), w.directServer()
			m := w.mutex()
			far.owner(m)
			w.e.Link.Blackhole()
			for _, r := range []simba.AcquireRequest{
				{Mutex: m, Contender: "x", TTL: sec},
				{Mutex: m, Contender: "y", TTL: sec, Waiter: nobody{}},
			} {
				_, _, err := far.b.Acquire(context.Background(), r)
				w.mustBeUnavailable("acquire", err)
			}
			b := near.take(m, "b", long, 0)
			w.e.Link.Heal()
			far.ownerAgain(m)
			w.during(500*ms, "b owns it", func() bool { return near.owner(m).Token == b.Token })
			c := near.block(m, "c", long, 0)
			near.giveUp(m, "b")
			c.granted() // at the latest when x's lease ends
		}},
	}
}

// oversold has a own a mutex through the far server, over a slow network, until its lease ends. It
// returns how much longer than that a is sure of it, by the answer. It reports false if a was told
// of no lease in time.
func (w *world) oversold(far, near *server, how, m string, ttl time.Duration) (o simba.Outcome, over time.Duration, inTime bool) {
	w.t.Helper()
	far.take(m, "a", long, 0)
	if how != "renewed" {
		far.giveUp(m, "a")
	}
	w.e.Link.Delay(50 * ms)
	defer w.e.Link.Heal()
	switch how {
	case "acquired":
		if o, inTime = far.takeIfInTime(m, "a", ttl, 0); !inTime {
			return o, 0, false
		}
	case "renewed":
		asked := time.Now()
		var err error
		o, err = far.b.Guard(context.Background(), simba.GuardRequest{Mutex: m, Contender: "a", TTL: ttl})
		if far.isLate(err, asked, ttl) {
			return o, 0, false
		}
		far.settle(o.Seq, err)
	case "handed on":
		near.take(m, "b", long, 0)
		a := far.block(m, "a", ttl, 0)
		near.giveUp(m, "b")
		a.awaitWake()
		if o = a.end(simba.EndWoken); o.Status == simba.StatusWaiting {
			return o, 0, false
		}
	}
	sure := time.Now().Add(o.Transition)
	w.await("the lease ends", func() bool { return near.try(m, "c", sec, 0).Status == simba.StatusAcquired })
	return o, time.Until(sure), true
}
