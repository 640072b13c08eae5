package redis

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// A busy server takes in a grant after its lease ran out. By then a look may have given the
// same ticket a second tenure.
func TestWaiterGrantedTwiceBeforeFirstMessageGetsSecondGrant(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())

	// twice returns c's ticket and the replies that tell of its two tenures.
	twice := func(t *testing.T, m string) (w *waiter, ticket simba.Ticket, first, second *state) {
		acquire(t, b, m, "a", time.Minute, nil)
		w = newWaiter()
		_, ticket = acquire(t, b, m, "c", 200*time.Millisecond, w)
		awaitIdle(t, b, m, "c")
		muteReleases(b, m)
		runScript(t, b, m, acquireScript, "d", int64(60_000), int64(0), "wait", "", "0")
		first = runScript(t, b, m, releaseScript, "a", "0", "", "")
		until(t, "c's lease has run out, and d is granted the mutex", func() bool {
			return runScript(t, b, m, reconcileScript, "0", "", 0).owner == "d"
		})
		runScript(t, b, m, releaseScript, "d", "0", "", "")
		p := entryOf(ticket.(waitTicket).Ticket)
		// The second lease is long, so that the test has time.
		second = runScript(t, b, m, reconcileScript, "1", "", 0,
			"c", p.score, int64(60_000), int64(0), "", p.ticket)
		if len(first.grants) != 1 || len(second.grants) != 1 || second.owner != "c" {
			t.Fatalf("first %+v, second %+v", first, second)
		}
		return w, ticket, first, second
	}
	told := func(t *testing.T, m string, why simba.EndReason, ticket simba.Ticket, second *state) {
		t.Helper()
		o, err := ticket.End(why)
		if err != nil || o.Status != simba.StatusAcquired || o.Token != second.token {
			t.Errorf("%+v %v; Redis has %+v", o, err, owner(t, b, m))
		}
	}
	for name, why := range map[string]simba.EndReason{
		"woken": simba.EndWoken, "timeout": simba.EndTimeout, "left": simba.EndLeft,
	} {
		t.Run(name+", then the second is heard of", func(t *testing.T) {
			m := name + "-later"
			w, ticket, first, second := twice(t, m)
			b.applyReply(m, first)
			w.await(t)
			told(t, m, why, ticket, second)
			b.applyReply(m, second)
			stays(t, b, m, "c")
		})
		t.Run(name+", after the second is heard of", func(t *testing.T) {
			m := name + "-before"
			w, ticket, first, second := twice(t, m)
			b.applyReply(m, first)
			w.await(t)
			b.applyReply(m, second)
			stays(t, b, m, "c")
			told(t, m, why, ticket, second)
			stays(t, b, m, "c")
		})
	}
	t.Run("renewed by another request", func(t *testing.T) {
		const m = "renewed"
		w, ticket, first, second := twice(t, m)
		b.applyReply(m, first)
		w.await(t)
		runScript(t, b, m, guardScript, "c", int64(60_000), int64(0), tokenText(second.token))
		told(t, m, simba.EndWoken, ticket, second)
	})
	t.Run("in the last millisecond of the first", func(t *testing.T) {
		const m = "last"
		w, ticket, first, second := twice(t, m)
		// By this server's clock the first lease has a moment left.
		first.sent = time.Now().Add(-200*time.Millisecond + 900*time.Microsecond)
		b.applyReply(m, first)
		w.await(t)
		told(t, m, simba.EndWoken, ticket, second)
	})
	t.Run("and cannot be told", func(t *testing.T) {
		const m = "untold"
		w, ticket, first, second := twice(t, m)
		b.applyReply(m, first)
		w.await(t)
		b.applyReply(m, second)
		told(t, m, simba.EndWoken, ticket, second)
		if _, err := ticket.Abandon(); err != nil {
			t.Fatal(err)
		}
		if o := owner(t, b, m); o.Owner != "" {
			t.Errorf("%+v", o)
		}
	})
	t.Run("and is gone", func(t *testing.T) {
		const m = "gone"
		w, ticket, first, second := twice(t, m)
		b.applyReply(m, first)
		w.await(t)
		b.applyReply(m, second)
		if _, err := ticket.End(simba.EndGone); err != nil {
			t.Fatal(err)
		}
		until(t, "nobody owns what nobody was told of", func() bool { return owner(t, b, m).Owner == "" })
	})
}

// Redis confirms the tenure, and by the time that its answer is here nothing can be left of it. How often this
// server turns to Redis before is not known, so that several waiters ask at different times.
func TestWaiterWhoseGrantIsConfirmedTooLateWaitsOn(t *testing.T) {
	t.Parallel()
	s := stores.Redis(t)
	one := serve(t, "redis://"+s.Addr, noNotices{})
	link := stores.NewLink(t, s.Addr)
	b := serve(t, "redis://"+link.Addr(), newListener())
	const ttl, oneWay, waiters = 2 * time.Second, 500 * time.Millisecond, 6
	tickets := make(map[string]simba.Ticket)
	for i := range waiters {
		m := strconv.Itoa(i)
		acquire(t, one, m, "a", time.Minute, nil)
		_, tickets[m] = acquire(t, b, m, "c", ttl, newWaiter())
		awaitIdle(t, b, m, "c")
	}
	link.Delay(oneWay)
	var all sync.WaitGroup
	for i := range waiters {
		m := strconv.Itoa(i)
		release(t, one, m, "a")
		granted := time.Now()
		b.waiters.Grant(m, "c", proxy.Grant{Token: owner(t, one, m).Token, Since: granted, Confirm: true})
		all.Go(func() {
			time.Sleep(time.Duration(i) * oneWay / 2)
			o, err := tickets[m].End(simba.EndWoken)
			t.Logf("%s: told after %v: %+v, %v", m, time.Since(granted), o, err)
			if late := (*simba.UnavailableError)(nil); errors.As(err, &late) {
				return // that is told, too
			}
			if err != nil || o.Status == simba.StatusTimeout || o.Status == simba.StatusAcquired && o.Transition == 0 {
				t.Errorf("%s: told %+v, %v", m, o, err)
			}
		})
	}
	all.Wait()
}
