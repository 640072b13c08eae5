package simbatest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/suspend"
	"github.com/simba-resp/simba-resp/client/simbatest"
)

// The timers of Go stop while the machine is suspended, but a lease does not.
func TestOwnerRenewsAfterASuspensionOrLosesTheMutex(t *testing.T) {
	for name, option := range map[string]client.Option{"renewed": nil, "not renewed": client.WithoutRenewal()} {
		for slept, lost := range map[time.Duration]bool{time.Second: false, 10 * time.Second: false, 12 * time.Second: true} {
			t.Run(name+" "+slept.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := newClient(t, simbatest.Start(t))
					l, err := c.Lock(t.Context(), "report", option)
					must(t, err)
					// Err of a derived context does not read the clock.
					derived, cancel := context.WithCancel(l.Context())
					defer cancel()
					time.Sleep(time.Second) // of the lease of 12 s
					defer suspend.Pretend(slept)()
					time.Sleep(250 * time.Millisecond)
					synctest.Wait()
					if (derived.Err() != nil) != lost {
						t.Errorf("250 ms after the suspension, Err of a derived context is %v", derived.Err())
					}
					if left := time.Until(l.Owner().TransitionAt); !lost && name == "renewed" && left < 11*time.Second {
						t.Errorf("250 ms after the suspension, the lease ends in %v; the owner has not renewed it", left)
					}
					if err := l.Unlock(t.Context()); errors.Is(err, client.ErrLost) != lost {
						t.Errorf("Unlock returns %v", err)
					}
				})
			})
		}
	}
}
