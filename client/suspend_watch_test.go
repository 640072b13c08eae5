package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

// The contexts that are derived from it end as well.
func TestOwnershipEndsSoonAfterTheMachineWasSuspended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOwnership(t.Context(), new(suspendWatch), 7, now(), time.Minute)
		child, cancel := context.WithCancel(o)
		defer cancel()
		time.Sleep(time.Second)
		at := time.Now()
		defer suspend.Pretend(time.Hour)()
		<-child.Done()
		if took := time.Since(at); took > suspendCheckEvery {
			t.Errorf("Done after %v", took)
		}
		if !errors.Is(context.Cause(child), ErrLost) {
			t.Errorf("cause %v", context.Cause(child))
		}
	})
}
