package backendtest

import (
	"time"

	"github.com/simba-resp/simba-resp"
)

func pollingRules() []rule {
	return []rule{
		{"turn", "a polling waiter that listens is told of its turn, and the mutex is kept for it", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(long)
			s.take(m, "a", long, 0)
			s.listen(m, "b")
			s.queueUp(m, "b", sec)
			s.giveUp(m, "a")
			s.hear(simba.ContenderChannel(m, "b"), "released@@a")
			o := s.acquire(m, "c", sec, 0)
			if o.Status != simba.StatusQueued || o.Owner != "" || o.Token != 0 || o.Position != 2 {
				w.t.Errorf("c in b's turn: %s", show(o))
			}
			if o.Transition <= 0 || o.Transition > long {
				w.t.Errorf("c would ask again after %v", o.Transition)
			}
			if t := s.owner(m); t.Owner != "" {
				w.t.Errorf("a kept mutex has owner %q", t.Owner)
			}
			s.take(m, "b", sec, 0)
		}},
		{"turn", "a polling waiter that is told is first in line before blocked ones", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(long)
			s.take(m, "a", long, 0)
			s.listen(m, "b")
			s.queueUp(m, "b", sec)
			c := s.block(m, "c", long, 0)
			s.giveUp(m, "a")
			s.hear(simba.ContenderChannel(m, "b"), "released@@a")
			if c.isWoken() {
				w.t.Error("c was woken in b's turn")
			}
			s.take(m, "b", long, 0)
			s.giveUp(m, "b")
			c.granted()
		}},
		{"pass", "a missed turn goes to the next in line", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(200 * ms)
			s.take(m, "a", long, 0)
			s.listen(m, "b")
			s.queueUp(m, "b", sec)
			c := s.block(m, "c", long, 0)
			sent := time.Now()
			s.giveUp(m, "a")
			c.granted()
			if took := time.Since(sent); took < 200*ms-rounding {
				w.t.Errorf("c's turn came after %v", took)
			}
			s.hear(simba.ContenderChannel(m, "b"), "released@@a")
		}},
		{"pass", "a missed turn that nobody else waits for leaves it free", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(200 * ms)
			s.take(m, "a", long, 0)
			s.listen(m, "b")
			s.queueUp(m, "b", sec)
			s.giveUp(m, "a")
			w.await("the turn ends", func() bool { return s.try(m, "c", long, 0).Status == simba.StatusAcquired })
		}},
		{"pass", "a subscriber that has left loses its turn at once", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(long)
			s.take(m, "a", long, 0)
			s.listen(m, "b")
			s.queueUp(m, "b", sec)
			c := s.block(m, "c", long, 0)
			s.radio.unsubscribe(simba.ContenderChannel(m, "b"))
			s.giveUp(m, "a")
			c.granted()
		}},
		{"pass", "leaving in one's turn passes it on", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(long)
			s.take(m, "a", long, 0)
			s.listen(m, "b")
			s.queueUp(m, "b", sec)
			c := s.block(m, "c", long, 0)
			s.giveUp(m, "a")
			s.hear(simba.ContenderChannel(m, "b"), "released@@a")
			if s.release(m, "b") {
				w.t.Error("b owned nothing")
			}
			c.granted()
		}},
		{"8", "a polling waiter that cannot be reached holds up nobody", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(long)
			s.take(m, "a", long, 0)
			s.queueUp(m, "mute", sec)
			c := s.block(m, "c", long, 0)
			s.giveUp(m, "a")
			c.granted()
		}},
		{"place", "a polling waiter that cannot be reached keeps its place", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.take(m, "a", long, 0)
			s.queueUp(m, "mute", sec)
			c := s.block(m, "c", long, 0)
			d := s.block(m, "d", long, 0)
			s.giveUp(m, "a")
			c.granted()
			w.equal("queue", s.queue(m), []string{"mute", "d"})
			now := s.block(m, "mute", long, 0)
			s.giveUp(m, "c")
			now.granted()
			s.giveUp(m, "mute")
			d.granted()
		}},
		{"place", "a waiter that subscribes while it is free is told", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.take(m, "a", long, 0)
			s.queueUp(m, "b", sec)
			s.giveUp(m, "a")
			if got := s.radio.heardOn(simba.ContenderChannel(m, "b")); len(got) != 0 {
				w.t.Errorf("told without a subscription: %q", got)
			}
			s.listen(m, "b")
			s.hearOnly(simba.ContenderChannel(m, "b"), "released@@a")
		}},
		{"window-0", "a handoff window of zero is free for all", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(0)
			s.take(m, "a", long, 0)
			for _, c := range []string{"b", "c"} {
				s.listen(m, c)
				s.queueUp(m, c, long)
			}
			s.giveUp(m, "a")
			for _, c := range []string{"b", "c"} {
				s.hear(simba.ContenderChannel(m, c), "released@@a")
			}
			s.take(m, "stranger", long, 0)
		}},
		{"window-0", "a blocked waiter is granted behind those who are told and do not come", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetHandoffWindow(0)
			s.take(m, "a", long, 0)
			s.listen(m, "b")
			s.queueUp(m, "b", long)
			d := s.block(m, "d", long, 0)
			s.giveUp(m, "a")
			d.granted()
		}},
		{"9", "a polling waiter lapses after the grace, and not before", 0, func(w *world) {
			s := w.server()
			s.b.SetQueueGrace(300 * ms)
			w.withLease(3*sec, func(m string, lease time.Duration) bool {
				sent := time.Now()
				if _, inTime := s.takeIfInTime(m, "a", lease-sec, sec); !inTime {
					return false
				}
				if o := s.acquire(m, "b", long, 0); o.Status != simba.StatusQueued {
					return false // a's lease is over
				}
				w.await("b's place lapses", func() bool { return len(s.queue(m)) == 0 })
				if took := time.Since(sent); took < lease+300*ms-rounding {
					w.t.Errorf("b's place lapsed after %v", took)
				}
				return true
			})
		}},
		{"9", "a polling waiter that goes on asking keeps its place", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetQueueGrace(2 * sec)
			s.take(m, "a", long, 0)
			s.queueUp(m, "b", sec)
			s.breakIt(m, "")
			w.await("b is passed over", func() bool { return s.try(m, "c", long, 0).Status == simba.StatusAcquired })
			for range 20 {
				if o := s.acquire(m, "b", sec, 0); o.Status != simba.StatusQueued || o.Position != 1 {
					w.t.Fatalf("%s", show(o))
				}
				pass(20 * ms)
			}
		}},
		{"9", "an owner whose lease ends long after its waiters asked finds them waiting", 0, func(w *world) {
			s, m := w.server(), w.mutex()
			s.b.SetQueueGrace(0)
			s.take(m, "a", long, 0)
			s.queueUp(m, "b", sec)
			pass(300 * ms)
			w.equal("queue", s.queue(m), []string{"b"}) // until the end of the lease that it saw
		}},
	}
}
