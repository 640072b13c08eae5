package client_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/suspend"
	"github.com/simba-resp/simba-resp/client/internal/testserver"
)

func TestContextOfDoEndsWhenTheMachineWasSuspended(t *testing.T) {
	c, done := connect()
	defer done()
	err := c.Do(t.Context(), "job", func(ctx context.Context) error {
		defer suspend.Pretend(time.Hour)()
		if ctx.Err() == nil || !errors.Is(context.Cause(ctx), client.ErrLost) {
			t.Errorf("after a suspension of an hour Err is %v with the cause %v, want the cause ErrLost", ctx.Err(), context.Cause(ctx))
		}
		return nil
	})
	if !errors.Is(err, client.ErrLost) {
		t.Errorf("Do returns %v, not ErrLost", err)
	}
}

// Resign reads the clock and finds that the lease has ended, though no timer has fired.
func TestResignAfterTheLeaseIsALoss(t *testing.T) {
	var log bytes.Buffer
	c, done := testserver.ConnectWith(client.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	owned, ended := make(chan struct{}, 1), make(chan error, 1)
	k, err := c.NewContender(client.ContenderConfig{Mutex: "job", OnAcquired: func(ctx context.Context, _ client.State) {
		context.AfterFunc(ctx, func() { ended <- context.Cause(ctx) })
		owned <- struct{}{}
	}})
	check(err)
	check(k.Start())
	<-owned
	undo := suspend.Pretend(time.Hour)
	k.Resign()
	cause := <-ended
	undo()
	if !errors.Is(cause, client.ErrLost) {
		t.Errorf("the cause of the ownership context is %v, want ErrLost", cause)
	}
	check(k.Stop(t.Context()))
	done()
	if !strings.Contains(log.String(), "mutex lost") {
		t.Errorf("the log does not have \"mutex lost\": %s", &log)
	}
}
