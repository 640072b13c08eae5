package resp

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// guarded is a Handler whose AUTH authenticates a client and whose RESET undoes AUTH.
func guarded() *script {
	return &script{commands: map[string]func(*Conn, [][]byte){
		"AUTH":  func(c *Conn, _ [][]byte) { c.SetAuthenticated(true); c.Reply().Simple("OK") },
		"RESET": func(c *Conn, _ [][]byte) { c.SetAuthenticated(false); c.Reply().Simple("RESET") },
	}}
}

// guessing is a Handler whose AUTH fails after 5 s.
func guessing() *script {
	return &script{commands: map[string]func(*Conn, [][]byte){"AUTH": func(c *Conn, _ [][]byte) {
		c.NewWait().Await(time.Now().Add(5 * time.Second))
		c.Reply().Error("WRONGPASS")
	}}}
}

func TestAuthTimeoutHoldsWithinAPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := dial(t, NewServer(passwords(), guessing()))
		start := time.Now()
		cl.send(strings.Repeat("AUTH\r\n", 100))
		cl.expectEnd("-WRONGPASS\r\n-WRONGPASS\r\n")
		if d := time.Since(start); d != defaultAuthTimeout {
			t.Errorf("the server closed the connection after %v, want AuthTimeout", d)
		}
	})
}

func TestUnauthenticatedClientsBufferLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := dial(t, NewServer(passwords(), guessing()))
		cl.send("AUTH\r\n")
		synctest.Wait()
		const most = unauthArgs*(unauthArg+headerSize) + defaultMaxInline
		n, err := cl.Write(make([]byte, 2*most))
		if err == nil || n > most {
			t.Errorf("the server read %d bytes, Write returned %v; want at most %d bytes and an error", n, err, most)
		}
	})
}

func passwords() Config { return Config{RequireAuth: func() bool { return true }} }

func TestAuthTimeoutHoldsForActiveClients(t *testing.T) {
	for name, act := range map[string]func(cl *client){
		"nothing":                     func(*client) {},
		"a letter without a line end": func(cl *client) { cl.send("P") },
		"a digit without a line end":  func(cl *client) { cl.send("0") },
		"commands":                    func(cl *client) { cl.call("PING\r\n", "+PONG\r\n") },
		"RESET":                       func(cl *client) { cl.call("RESET\r\n", "+RESET\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cl := dial(t, NewServer(passwords(), guarded()))
				start := time.Now()
				for range 9 {
					time.Sleep(time.Second)
					act(cl)
				}
				cl.expectEnd("")
				if d := time.Since(start); d != defaultAuthTimeout {
					t.Errorf("the server closed the connection after %v, want AuthTimeout", d)
				}
			})
		})
	}
}

func TestAuthTimeoutEndsWithAuthentication(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := dial(t, NewServer(passwords(), guarded()))
		time.Sleep(defaultAuthTimeout - time.Nanosecond)
		cl.call("AUTH\r\n", "+OK\r\n")
		time.Sleep(24 * time.Hour)
		cl.call("PING\r\n", "+PONG\r\n")
	})
}

func TestResetRestartsTheAuthTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := dial(t, NewServer(passwords(), guarded()))
		cl.call("AUTH\r\n", "+OK\r\n")
		time.Sleep(time.Hour)
		cl.call("RESET\r\n", "+RESET\r\n")
		start := time.Now()
		cl.expectEnd("")
		if d := time.Since(start); d != defaultAuthTimeout {
			t.Errorf("the server closed the connection after %v, not after AuthTimeout", d)
		}
	})
}

func TestAuthTimeoutNeedsAPassword(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cl := dial(t, NewServer(Config{}, guarded()))
		time.Sleep(24 * time.Hour)
		cl.call("PING\r\n", "+PONG\r\n")
	})
}
