package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

// The test watches a derived context, which ends only when the ownership ends by itself.
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
			t.Errorf("the context ended %v after the suspension, want at most %v", took, suspendCheckEvery)
		}
		if !errors.Is(context.Cause(child), ErrLost) {
			t.Errorf("the cause is %v, not ErrLost", context.Cause(child))
		}
	})
}
