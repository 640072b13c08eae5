package redis

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// A busy server may handle a grant only after its lease has expired. By then reconciling may have
// granted the same ticket a second tenure.
func TestWaiterGrantedTwiceBeforeFirstMessageGetsSecondGrant(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, newListener())

	// twice returns c's ticket and the replies with its two grants.
	twice := func(t *testing.T, m string) (w *waiter, ticket simba.Ticket, first, second *reply) {
		acquire(t, b, m, "a", time.Minute, nil)
		w = newWaiter()
		_, ticket = acquire(t, b, m, "c", 200*time.Millisecond, w)
		awaitIdle(t, b, m, "c")
		unsubscribeReleases(b, m)
		runScript(t, b, m, acquireScript, "d", int64(60_000), int64(0), "wait", "", "0")
		first = runScript(t, b, m, releaseScript, "a", "0", "", "")
		until(t, "c's lease has expired, and d is granted the mutex", func() bool {
			return runScript(t, b, m, reconcileScript, "0", "", 0).owner == "d"
		})
		runScript(t, b, m, releaseScript, "d", "0", "", "")
		e := waitOf(ticket.(waitTicket).Ticket)
		// The second lease is long, so that the test has time.
		second = runScript(t, b, m, reconcileScript, "1", "", 0,
			"c", e.score, int64(60_000), int64(0), "", e.ticket)
		if len(first.tickets) != 1 || len(second.tickets) != 1 || second.owner != "c" {
			t.Fatalf("first reply %+v, second reply %+v; want one grant each, the second to c", first, second)
		}
		return w, ticket, first, second
	}
	expectSecond := func(t *testing.T, m string, why simba.EndReason, ticket simba.Ticket, second *reply) {
		t.Helper()
		o, err := ticket.End(why)
		if err != nil || o.Status != simba.StatusAcquired || o.Token != second.token {
			t.Errorf("End of the waiter: %+v %v; want acquired with the token of the second grant; Redis has %+v",
				o, err, owner(t, b, m))
		}
	}
	for name, why := range map[string]simba.EndReason{
		"woken": simba.EndWoken, "timeout": simba.EndTimeout, "left": simba.EndLeft,
	} {
		t.Run(name+", then the second reply", func(t *testing.T) {
			m := name + "-later"
			w, ticket, first, second := twice(t, m)
			b.applyReply(m, first)
			w.await(t)
			expectSecond(t, m, why, ticket, second)
			b.applyReply(m, second)
			mustStay(t, b, m, "c")
		})
		t.Run(name+", after the second reply", func(t *testing.T) {
			m := name + "-before"
			w, ticket, first, second := twice(t, m)
			b.applyReply(m, first)
			w.await(t)
			b.applyReply(m, second)
			mustStay(t, b, m, "c")
			expectSecond(t, m, why, ticket, second)
			mustStay(t, b, m, "c")
		})
	}
	t.Run("another request renews the second grant", func(t *testing.T) {
		const m = "renewed"
		w, ticket, first, second := twice(t, m)
		b.applyReply(m, first)
		w.await(t)
		runScript(t, b, m, guardScript, "c", int64(60_000), int64(0), tokenText(second.token))
		expectSecond(t, m, simba.EndWoken, ticket, second)
	})
	t.Run("in the last millisecond of the first lease", func(t *testing.T) {
		const m = "last"
		w, ticket, first, second := twice(t, m)
		// By this server's clock, 100 µs of the first lease are left.
		first.sent = time.Now().Add(-200*time.Millisecond + 900*time.Microsecond)
		b.applyReply(m, first)
		w.await(t)
		expectSecond(t, m, simba.EndWoken, ticket, second)
	})
	t.Run("the client abandons the second grant", func(t *testing.T) {
		const m = "abandoned"
		w, ticket, first, second := twice(t, m)
		b.applyReply(m, first)
		w.await(t)
		b.applyReply(m, second)
		expectSecond(t, m, simba.EndWoken, ticket, second)
		if _, err := ticket.Abandon(); err != nil {
			t.Fatal(err)
		}
		if o := owner(t, b, m); o.Owner != "" {
			t.Errorf("OWNER after the grant was abandoned: %+v; want no owner", o)
		}
	})
	t.Run("the waiter disconnects", func(t *testing.T) {
		const m = "gone"
		w, ticket, first, second := twice(t, m)
		b.applyReply(m, first)
		w.await(t)
		b.applyReply(m, second)
		if _, err := ticket.End(simba.EndGone); err != nil {
			t.Fatal(err)
		}
		until(t, "nobody owns the mutex", func() bool { return owner(t, b, m).Owner == "" })
	})
}

// Redis confirms the tenure, but the lease has expired when the reply arrives. The test cannot know
// when the server sends the confirmation, so several waiters end at different times.
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
		b.Waiters.Grant(m, "c", proxy.Grant{Token: owner(t, one, m).Token, Since: granted, Confirm: true})
		all.Go(func() {
			time.Sleep(time.Duration(i) * oneWay / 2)
			o, err := tickets[m].End(simba.EndWoken)
			t.Logf("%s: ended after %v: %+v, %v", m, time.Since(granted), o, err)
			if late := (*simba.UnavailableError)(nil); errors.As(err, &late) {
				return // correct too: the reply came after the lease
			}
			if err != nil || o.Status == simba.StatusTimeout || o.Status == simba.StatusAcquired && o.Transition == 0 {
				t.Errorf("End of the waiter for %s: %+v, %v; want waiting, or acquired with time left", m, o, err)
			}
		})
	}
	all.Wait()
}
