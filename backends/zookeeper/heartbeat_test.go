package zookeeper

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestAnotherServerRenewsWhileTheGranterLives(t *testing.T) {
	const session = 6 * time.Second
	srv := stores.ZooKeeper(t)
	granter := open(t, Options{Servers: srv.Addr, SessionTimeout: session})
	other := open(t, Options{Servers: srv.Addr, SessionTimeout: session})
	a := take(t, granter, "m", "a", session/2)
	refused := 0
	for end := time.Now().Add(session + session/2); time.Now().Before(end); time.Sleep(session / 20) {
		out, err := other.Guard(ctx, guardOf("m", "a", session/2))
		switch {
		case err != nil:
			unavailable(t, err)
			refused++
		case out.Status != simba.StatusRenewed || out.Token != a.Token:
			t.Fatalf("GUARD at the other server: %+v; want renewed with the token of %+v", out, a)
		}
	}
	t.Logf("%d renewals were refused", refused)
}

// The granter of a's lease does not reach the ensemble any more. Meanwhile a renews through another
// server, as often as possible. b must not get the mutex before the end of a renewed lease.
func TestRenewedLeaseEndsBeforeTheSessionOfItsGranter(t *testing.T) {
	const session = 4 * time.Second
	srv := stores.ZooKeeper(t)
	for name, heals := range map[string]bool{"cut off for ever": false, "cut off until it has given its session up": true} {
		t.Run(name, func(t *testing.T) {
			link := stores.NewLink(t, srv.Addr)
			granter := open(t, Options{Servers: link.Addr(), SessionTimeout: session, Timeout: time.Second})
			other := open(t, Options{Servers: srv.Addr})
			take(t, granter, "m", "a", session/2)
			_, woken := block(t, other, "m", "b", longLease)
			granted := make(chan time.Time, 1)
			go func() {
				defer close(granted)
				select {
				case <-woken:
					granted <- time.Now()
				case <-time.After(patience):
				}
			}()
			var end time.Time
			for renewals := 0; ; {
				asked := time.Now()
				out, err := other.Guard(ctx, guardOf("m", "a", session/2))
				if err != nil {
					unavailable(t, err)
				} else if out.Status != simba.StatusRenewed {
					break
				} else {
					end = asked.Add(session / 2)
					if renewals++; renewals == 1 {
						link.Blackhole()
					}
				}
				events, _, err := granter.History(ctx, simba.HistoryRequest{Mutex: "m", Count: 1})
				if err == nil && events[0].Kind == simba.EventExpired && heals {
					link.Heal() // heartbeats that were on their way arrive
					heals = false
				}
			}
			if at, ok := <-granted; !ok || end.IsZero() || at.Before(end) {
				t.Errorf("b got the mutex (%v) %v before the end of a's last renewal", ok, end.Sub(at))
			}
			giveUp(t, other, "m", "b")
		})
	}
}
