package stores

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// Some tests would pass unnoticed if the link had none of these faults. The other faults have tests that fail
// without them.
func TestLinkDelaysBothWaysStallsAndResets(t *testing.T) {
	store, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	go func() {
		if c, err := store.Accept(); err == nil {
			_, _ = io.Copy(c, c) // until the link resets it
			c.Close()
		}
	}()
	l := NewLink(t, store.Addr().String())
	c, err := net.Dial("tcp", l.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(readyTimeout))
	const d = 50 * time.Millisecond
	l.Delay(d)
	sent, reply := time.Now(), make([]byte, 1)
	_, _ = c.Write(reply)
	if _, err = c.Read(reply); err != nil || time.Since(sent) < 2*d {
		t.Errorf("the reply came after %v, %v; want at least %v", time.Since(sent), err, 2*d)
	}
	l.Heal()
	stalled := l.StallFrom("X")
	_, _ = c.Write([]byte("x"))
	<-stalled
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err = c.Read(reply); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read from a stalled connection: %q, %v; want nothing", reply, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(readyTimeout))
	l.Heal()
	if _, err = c.Read(reply); err != nil || reply[0] != 'x' {
		t.Errorf("Read after Heal: %q, %v; want x", reply, err)
	}
	l.Reset()
	if _, err = c.Read(reply); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read after Reset: %v; want a reset", err)
	}
}
