package tests

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
)

// blocked waits until so many clients of the server at addr are blocked.
func blocked(t testing.TB, addr string, want int) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		n, err := blockedClients(addr)
		if err != nil {
			t.Fatal(err)
		}
		if n == want {
			return
		}
	}
	t.Fatalf("not %d clients are blocked", want)
}

var blockedLine = regexp.MustCompile(`(?m)^blocked_clients:(\d+)\r$`)

// blockedClients asks the server how many clients are blocked.
func blockedClients(addr string) (int, error) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	info, err := redis.String(c.Do("INFO", "clients"))
	if err != nil {
		return 0, err
	}
	match := blockedLine.FindStringSubmatch(info)
	if match == nil {
		return 0, fmt.Errorf("INFO clients says %q", info)
	}
	return strconv.Atoi(match[1])
}

func TestStopUnblocksWaitersAndKeepsLeases(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			s := start(t)
			_, token := acquire(t, client(t, s), "job", "a", 600_000)

			waiter, err := redis.Dial("tcp", s.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer waiter.Close()
			reply := make(chan error, 1)
			go func() {
				_, err := waiter.Do("SIMBA.ACQUIRE", "job", "b", 600_000, "WAIT", 0)
				reply <- err
			}()
			blocked(t, s.addr, 1)
			s.signal(t, sig)
			if err := <-reply; err == nil || !strings.HasPrefix(err.Error(), "UNBLOCKED ") {
				t.Errorf("the blocked client got %v", err)
			}
			if code := s.wait(t); code != 0 {
				t.Errorf("exit code %d:\n%s", code, s.out.String())
			}

			again := client(t, startIn(t, s.dir))
			status, kept := acquire(t, again, "job", "a", 600_000)
			if status != "renewed" || kept != token {
				t.Errorf("after the restart: %s with token %d, had %d", status, kept, token)
			}
		})
	}
}

func TestShutdownCommandStopsAsASignalDoes(t *testing.T) {
	s := start(t)
	c, err := redis.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Do("SHUTDOWN"); err == nil {
		t.Error("SHUTDOWN has a reply")
	}
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d:\n%s", code, s.out.String())
	}
}

// A client that takes nothing keeps a stop waiting; the second signal does not.
func TestSecondSignalExitsAtOnce(t *testing.T) {
	s := start(t, "--shutdown-timeout", "1h")
	deaf, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	echo := append([]byte("*2\r\n$4\r\nECHO\r\n$60000\r\n"), append(bytes.Repeat([]byte("x"), 60_000), "\r\n"...)...)
	for {
		// The server stops reading when its replies are not taken, and then there is
		// no room for more requests.
		if err := deaf.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := deaf.Write(echo); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	s.signal(t, syscall.SIGTERM)
	s.wants(t, "msg=stopping")
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code == 0 {
		t.Error("exit code 0")
	}
}
