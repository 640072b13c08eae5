package resp

import (
	"context"
	"errors"
	"testing"
)

func TestPingIsAnsweredBeyondMaxClients(t *testing.T) {
	s, dial := serving(t, Config{MaxClients: 1}, &script{})
	dial().call("PING\r\n", "+PONG\r\n")
	for range 3 {
		if err := s.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if st := s.Stats(); st.Rejected != 0 || st.ConnectionsReceived != 1 {
		t.Errorf("stats after Ping: %+v, want 1 received connection and none rejected", st)
	}
}

func TestPingAcceptsAnError(t *testing.T) {
	s, _ := serving(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"PING": func(c *Conn, _ [][]byte) { c.Reply().Error("NOAUTH Authentication required.") },
	}})
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// A disk that hangs delays the replies that wait for a change. The reply to PING waits for no change.
func TestPingIsAnsweredWhileACommitHangs(t *testing.T) {
	hangs, release := make(chan struct{}), make(chan struct{})
	h := &script{commit: func() error { close(hangs); <-release; return nil }}
	s, dial := serving(t, Config{Committer: h}, &replying{script: h})
	cl := dial()
	cl.send("SET\r\n")
	<-hangs
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	close(release)
	cl.expect("+PONG\r\n")
}

// replying is a script in which the reply to SET waits for a change.
type replying struct{ *script }

func (h *replying) Execute(c *Conn, args [][]byte) {
	if string(args[0]) == "SET" {
		c.ReplyAfter(1)
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
