package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
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
		if len(first.grants) != 1 || len(second.grants) != 1 || second.owner != "c" {
			t.Fatalf("first reply %+v, second reply %+v; want one grant each, the second to c", first, second)
		}
		return w, ticket, first, second
	}
	for name, c := range map[string]struct {
		why  simba.EndReason
		late bool                     // the server handles the first grant only in the last millisecond of its lease
		then func(m string, s *reply) // between the first reply and the end of the wait
	}{
		"woken":                           {why: simba.EndWoken},
		"woken in the last millisecond":   {why: simba.EndWoken, late: true},
		"woken, after the second reply":   {why: simba.EndWoken, then: b.applyReply},
		"timeout":                         {why: simba.EndTimeout},
		"timeout, after the second reply": {why: simba.EndTimeout, then: b.applyReply},
		"another request renews the second": {why: simba.EndWoken, then: func(m string, s *reply) {
			runScript(t, b, m, guardScript, "c", int64(60_000), int64(0), tokenText(s.token))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := strings.ReplaceAll(name, " ", "-")
			w, ticket, first, second := twice(t, m)
			if c.late { // by this server's clock, 100 µs of the first lease are left
				first.sent = time.Now().Add(-200*time.Millisecond + 900*time.Microsecond)
			}
			b.applyReply(m, first)
			w.await(t)
			if c.then != nil {
				c.then(m, second)
			}
			o, err := ticket.End(c.why)
			if err != nil || o.Status != simba.StatusAcquired || o.Token != second.token {
				t.Errorf("End of the waiter: %+v %v; want acquired with the token of the second grant; Redis has %+v",
					o, err, owner(t, b, m))
			}
			b.applyReply(m, second)
			mustStay(t, b, m, "c")
		})
	}
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
