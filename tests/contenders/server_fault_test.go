package contenders

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestAContenderMayStartBeforeItsServer(t *testing.T) {
	t.Parallel()
	s := simbatest.New(t)
	failed := make(firstLine, 1)
	c, err := client.New(connect(t, s.Addr), client.Options{Logger: slog.New(slog.NewTextHandler(failed, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k := newRecorded(t, c, stable("m"))
	k.start(t)
	if line := within(t, "the client logs that the server does not answer", failed); !strings.Contains(line, "level=WARN") {
		t.Errorf("the client logs %s, want a warning", line)
	}
	s.Start()
	within(t, "OnAcquired is called", k.acquired)
	k.stop(t)
}

// firstLine is the output of a log handler. The channel gets the first line.
type firstLine chan string

func (f firstLine) Write(line []byte) (int, error) {
	select {
	case f <- string(line):
	default:
	}
	return len(line), nil
}

// steady is the configuration of a contender that renews often, and keeps its lease during a
// restart of the server.
func steady(mutex string) client.ContenderConfig {
	return client.ContenderConfig{Mutex: mutex, TTL: 300 * time.Millisecond, Transition: 20 * time.Second}
}

func TestATenureSurvivesACrashOfTheServer(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	k, other := newRecorded(t, newClient(t, s.Addr), steady("m")), newRecorded(t, newClient(t, s.Addr), steady("m"))
	k.start(t)
	within(t, "OnAcquired is called", k.acquired)
	ownership, token := k.ownership(), k.token()
	other.start(t)
	for range 3 {
		s.Restart()
		k.renewed(t)
	}
	if o, err := other.ask(t); err != nil || o.ID != k.ID() || o.Token != token {
		t.Errorf("after the restart, Owner returns %+v, %v, want %s with token %d", o, err, k.ID(), token)
	}
	if ownership.Err() != nil || !k.IsOwner() {
		t.Error("the context of the owner has ended, or IsOwner returns false")
	}
	k.noCallbacks(t)
	other.noCallbacks(t)
	k.stop(t)
	within(t, "OnAcquired is called", other.acquired)
	if other.token() <= token {
		t.Errorf("token %d of the next owner follows token %d, want a larger token", other.token(), token)
	}
}

func TestATenureEndsWithItsLeaseWhenTheServerIsDown(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	k := newRecorded(t, newClient(t, s.Addr), client.ContenderConfig{Mutex: "m", TTL: time.Second, Transition: 8 * time.Second})
	k.start(t)
	within(t, "OnAcquired is called", k.acquired)
	ownership, token := k.ownership(), k.token()
	s.Kill()
	if o := k.Owner(); !o.IsZero() {
		time.Sleep(time.Until(o.TransitionAt)) // nothing renews the lease
	}
	if ownership.Err() == nil || k.IsOwner() {
		t.Error("the ownership has not ended with the lease")
	}
	within(t, "OnReleased is called", k.released)
	if cause := context.Cause(ownership); !errors.Is(cause, client.ErrLost) {
		t.Errorf("the cause of the ownership's end is %v, want ErrLost", cause)
	}
	s.Start()
	within(t, "OnAcquired is called again", k.acquired)
	if k.token() <= token {
		t.Errorf("token %d follows token %d, want a larger token", k.token(), token)
	}
	k.noCallbacks(t)
}

func TestAContenderAcquiresAgainFromAServerThatLostItsData(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	k := newRecorded(t, newClient(t, s.Addr), steady("m"))
	k.start(t)
	within(t, "OnAcquired is called", k.acquired)
	old := k.ownership()
	s.Replace()
	within(t, "OnReleased is called", k.released) // the new server does not know the tenure
	if cause := context.Cause(old); !errors.Is(cause, client.ErrLost) {
		t.Errorf("the cause of the ownership's end is %v, want ErrLost", cause)
	}
	within(t, "OnAcquired is called again", k.acquired)
	if o, err := k.ask(t); err != nil || o.ID != k.ID() || !k.IsOwner() {
		t.Errorf("Owner of the new server returns %+v, %v, want %s, and IsOwner true", o, err, k.ID())
	}
	k.noCallbacks(t)
}

func TestATenureSurvivesAFrozenServer(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	k := newRecorded(t, newClient(t, s.Addr), steady("m"))
	k.start(t)
	within(t, "OnAcquired is called", k.acquired)
	s.Pause() // connections stay open, so only a timeout shows the fault
	time.Sleep(2 * time.Second)
	s.Resume()
	k.renewed(t)
	k.noCallbacks(t)
}
