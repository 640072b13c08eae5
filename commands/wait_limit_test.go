package commands

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

const tooManyWaiting = "-ERR max number of blocked clients reached"

func TestWaitersLeaveAQuarterOfMaxclientsFree(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, _ *oneTicket) {
		waits := func(p *peer) bool {
			t.Helper()
			before := s.server.Stats().Blocked
			p.send("SIMBA.ACQUIRE m c 1000 WAIT 60000")
			synctest.Wait()
			return s.server.Stats().Blocked == before+1
		}
		s.server.SetMaxClients(4)
		first := s.dial()
		if !waits(first) || !waits(s.dial()) || !waits(s.dial()) {
			t.Fatal("fewer than three of four clients can wait")
		}
		refused := s.dial()
		if waits(refused) {
			t.Fatal("four of four clients wait, want three")
		}
		if got := refused.reply(); !strings.HasPrefix(got, tooManyWaiting) {
			t.Errorf("the refused client got %q, want %s", got, tooManyWaiting)
		}
		first.nc.Close() // the waiter leaves
		synctest.Wait()
		if !waits(refused) {
			t.Error("after a waiter has left, the next client cannot wait")
		}
		s.server.SetMaxClients(8)
		for range 3 {
			if !waits(s.dial()) {
				t.Error("fewer than six of eight clients can wait")
			}
		}
		if waits(s.dial()) {
			t.Error("seven of eight clients wait, want six")
		}
		time.Sleep(time.Hour) // all waits time out
		if n := s.x.gate.waits.blocked.Load(); n != 0 {
			t.Errorf("waitLimit counts %d blocked clients, want 0", n)
		}
	})
}

func TestTheOnlyClientMayWait(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, _ *oneTicket) {
		s.server.SetMaxClients(1)
		if got := status(s.dial().do("SIMBA.ACQUIRE m c 1000 WAIT 1000")); got != "timeout" {
			t.Errorf("the only client got %s, want timeout", got)
		}
	})
}

func TestARequestThatNeedNotWaitIsServedAtTheWaitLimit(t *testing.T) {
	for want, answer := range map[string]simba.Status{"renewed": simba.StatusRenewed, "acquired": simba.StatusAcquired} {
		withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
			s.server.SetMaxClients(1)
			s.dial().send("SIMBA.ACQUIRE m c 1000 WAIT 60000")
			synctest.Wait()
			s.server.SetMaxClients(2) // one of two may wait
			ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
				if !r.NoQueue || r.Waiter != nil {
					t.Errorf("the backend got the request %+v, which may be queued", r)
				}
				return simba.Outcome{Status: answer, Owner: r.Contender, Token: 1}, nil, nil
			}
			if got := status(s.dial().do("SIMBA.ACQUIRE m c 1000 WAIT 60000")); got != want {
				t.Errorf("at the limit SIMBA.ACQUIRE replied %s, want %s", got, want)
			}
		})
	}
}
