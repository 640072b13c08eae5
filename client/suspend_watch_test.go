package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

// Err of the ownership would end the ownership, and the test does not call it. So the derived
// context ends only if suspendWatch ends the ownership.
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
			t.Errorf("the cause of the derived context is %v, want ErrLost", context.Cause(child))
		}
	})
}
