package resp

import (
	"context"
	"errors"
	"testing"
	"time"
)

// onEachLoop runs a test with the poller and with a goroutine for each connection.
func onEachLoop(t *testing.T, test func(t *testing.T, poll bool)) {
	for name, poll := range map[string]bool{"poller": true, "goroutines": false} {
		t.Run(name, func(t *testing.T) { test(t, poll) })
	}
}

func TestPingIsAnsweredBeyondMaxClients(t *testing.T) {
	onEachLoop(t, func(t *testing.T, poll bool) {
		s, dial := serving(t, Config{Poll: poll, MaxClients: 1}, &script{})
		dial().call("PING\r\n", "+PONG\r\n")
		for range 3 {
			if err := s.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if st := s.Stats(); st.Rejected != 0 || st.ConnectionsReceived != 1 {
			t.Errorf("stats after Ping: %+v, want 1 received connection and none rejected", st)
		}
	})
}

func TestPingAcceptsAnError(t *testing.T) {
	s, _ := serving(t, Config{Poll: true}, &script{commands: map[string]func(*Conn, [][]byte){
		"PING": func(c *Conn, _ [][]byte) { c.Reply().Error("NOAUTH Authentication required.") },
	}})
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestPingFailsWhileTheLoopHangs(t *testing.T) {
	hangs, release := make(chan struct{}), make(chan struct{})
	s, dial := serving(t, Config{Poll: true}, &script{commands: map[string]func(*Conn, [][]byte){
		"HANG": func(c *Conn, _ [][]byte) { // blocks without Detach
			close(hangs)
			<-release
			c.Reply().Simple("OK")
		},
	}})
	cl := dial()
	cl.send("HANG\r\n")
	<-hangs
	ctx, cancel := context.WithCancel(t.Context())
	pinged := make(chan error)
	go func() { pinged <- s.Ping(ctx) }()
	for len(s.Conns()) < 2 { // until the server has Ping's connection
		time.Sleep(time.Millisecond)
	}
	select {
	case err := <-pinged:
		t.Errorf("Ping returned %v while the poller hung, want no return", err)
	case <-time.After(50 * time.Millisecond):
		cancel()
		if err := <-pinged; err == nil {
			t.Error("Ping succeeded while the poller hung")
		}
	}
	close(release)
	cl.expect("+OK\r\n")
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("Ping after the hang returned %v, want nil", err)
	}
	cancel()
}

// A disk that hangs delays the replies that rest on a change. The reply to PING rests on no change.
func TestPingIsAnsweredWhileACommitHangs(t *testing.T) {
	onEachLoop(t, func(t *testing.T, poll bool) {
		hangs, release := make(chan struct{}), make(chan struct{})
		h := &script{commit: func() error { close(hangs); <-release; return nil }}
		s, dial := serving(t, Config{Poll: poll, Committer: h}, &resting{script: h})
		cl := dial()
		cl.send("SET\r\n")
		<-hangs
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
		close(release)
		cl.expect("+PONG\r\n")
	})
}

// resting is a script in which the reply to SET rests on a change.
type resting struct{ *script }

func (h *resting) Execute(c *Conn, args [][]byte) {
	if string(args[0]) == "SET" {
		c.RestOn(1)
	}
	c.Reply().Simple("PONG")
}

func TestPingAfterShutdownIsRefused(t *testing.T) {
	s := NewServer(Config{}, &script{})
	stopServer(t, s)
	if err := s.Ping(t.Context()); err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("Ping after Shutdown returned %v, want an error that is not context.Canceled", err)
	}
}
