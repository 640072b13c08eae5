package resp

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestConnectionEndsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var commitErr error
		commands := pubsub()
		commands["WAIT"] = func(c *Conn, _ [][]byte) { c.NewWait().Await(time.Time{}) }
		h := &script{commands: commands, commit: func() error { return commitErr }}
		s := NewServer(Config{
			Committer: h,
			Limits:    Limits{PushQueue: 1000, Args: 4, Command: 8000, Inline: 1000},
			Logger:    slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelInfo})),
		}, h)
		logged := func(want string, times int) {
			t.Helper()
			synctest.Wait()
			if n := strings.Count(log.String(), want); n != times {
				t.Errorf("the log has %q %d times, want %d:\n%s", want, n, times, log.String())
			}
			log.Reset()
		}

		attack := func() { dial(t, s).send("POST / HTTP/1.1\r\n") }
		attack()
		attack()
		logged("possible cross-protocol attack", 1) // once a minute
		time.Sleep(time.Minute)
		attack()
		logged("possible cross-protocol attack", 1)

		flood := func() {
			cl := dial(t, s)
			cl.send("WAIT\r\n")
			for {
				if _, err := cl.Write([]byte("PING\r\n")); err != nil {
					return
				}
			}
		}
		flood()
		flood()
		logged("it sent too much while blocked", 1) // once a minute

		slow := dial(t, s)
		slow.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		for s.Broker().Publish("a", "x") > 0 {
		}
		logged("does not read its messages", 1)

		dial(t, s).send("PING\r\n")
		time.Sleep(time.Minute)
		logged("does not read its replies", 1)

		dial(t, s).send("*a\r\n")
		dial(t, s).Close()
		logged("msg=", 0) // the log has no line that clients can cause at will

		commitErr = errors.New("disk full")
		dial(t, s).send("PING\r\n")
		logged("disk full", 1)
	})
}
