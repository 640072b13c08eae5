package lifecycle

import (
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestStopUnblocksWaitersAndKeepsLeases(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			s := simbatest.Start(t)
			_, token := simbatest.Acquire(t, simbatest.GoRedis(t, s), "job", "a", 600_000)

			waiter := simbatest.Conn(t, s)
			reply := make(chan error, 1)
			go func() {
				_, err := waiter.Do("SIMBA.ACQUIRE", "job", "b", 600_000, "WAIT", 0)
				reply <- err
			}()
			simbatest.AwaitBlocked(t, s.Addr, 1)
			s.Signal(sig)
			if err := <-reply; err == nil || !strings.HasPrefix(err.Error(), "UNBLOCKED ") {
				t.Errorf("the blocked client gets %v, want UNBLOCKED", err)
			}
			if code := s.Wait(t); code != 0 {
				t.Errorf("the server exits with code %d, want 0:\n%s", code, s.Output())
			}

			again := simbatest.GoRedis(t, simbatest.StartIn(t, s.Dir))
			status, kept := simbatest.Acquire(t, again, "job", "a", 600_000)
			if status != "renewed" || kept != token {
				t.Errorf("after the restart ACQUIRE returns %s with token %d, want renewed with token %d", status, kept, token)
			}
		})
	}
}

// readiness returns the status of /readyz.
func readiness(t *testing.T, addr string) int {
	t.Helper()
	reply, err := http.Get("http://" + addr + "/readyz")
	simbatest.Must(t, err)
	reply.Body.Close()
	return reply.StatusCode
}

func TestADrainingServerIsNotReadyButServes(t *testing.T) {
	for end, stop := range map[string]func(*simbatest.Server){
		"the time": func(*simbatest.Server) {},
		"a second SIGTERM": func(s *simbatest.Server) {
			for {
				s.Signal(syscall.SIGTERM) // counts as a copy of the first one for a second
				select {
				case <-s.Exited():
					return
				case <-time.After(1500 * time.Millisecond):
				}
			}
		},
		"SHUTDOWN": func(s *simbatest.Server) {
			_, _ = simbatest.Conn(t, s).Do("SHUTDOWN") // has no reply
		},
	} {
		t.Run("until "+end, func(t *testing.T) {
			t.Parallel()
			drain := "1h"
			if end == "the time" {
				drain = "5s"
			}
			web := simbatest.New(t).Addr
			s := simbatest.Start(t, "--http-addr", web, "--drain", drain)
			if code := readiness(t, web); code != http.StatusOK {
				t.Errorf("/readyz returns %d, want 200", code)
			}
			waiter := simbatest.Conn(t, s)
			simbatest.DoRecord(t, waiter, "SIMBA.ACQUIRE", "job", "a", 600_000)
			s.Signal(syscall.SIGTERM)
			s.Wants(t, "msg=\"draining: ")
			if drain == "1h" {
				if code := readiness(t, web); code != http.StatusServiceUnavailable {
					t.Errorf("while the server drains, /readyz returns %d, want 503", code)
				}
				if r := simbatest.DoRecord(t, simbatest.Conn(t, s), "SIMBA.ACQUIRE", "other", "b", 600_000); r["status"] != "acquired" {
					t.Errorf("while the server drains, a new client gets %v, want acquired", r)
				}
			}
			stop(s)
			if code := s.Wait(t); code != 0 {
				t.Errorf("the server exits with code %d, want 0:\n%s", code, s.Output())
			}
		})
	}
}

// deaf connects a client that requests a reply larger than the buffers of the network, and reads
// only its beginning. A stop of the server must wait for this client.
func deaf(t *testing.T, s *simbatest.Server) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr)
	simbatest.Must(t, err)
	t.Cleanup(func() { c.Close() })
	simbatest.Must(t, c.(*net.TCPConn).SetReadBuffer(4096))
	// The reply has more than 10 MB. The server must finish a reply that it has begun.
	request := "MULTI\r\n" + strings.Repeat("COMMAND DOCS\r\n", 400) + "EXEC\r\n"
	if _, err := c.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	for one := make([]byte, 1); one[0] != '*'; {
		if _, err := c.Read(one); err != nil {
			t.Fatal(err)
		}
	}
}

// signalUntil sends signals until the server has ended.
func signalUntil(t *testing.T, ended <-chan struct{}, signal func()) {
	t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for late := time.After(simbatest.Patience); ; {
		select {
		case <-ended:
			return
		case <-again.C:
			signal()
		case <-late:
			t.Fatal("further signals do not end the server")
		}
	}
}

// A process supervisor may send a signal twice in a row, so the server must ignore the second one.
// Only a signal more than a second after the first ends the stop early.
func TestOnlyALaterSignalEndsTheStopEarly(t *testing.T) {
	s := simbatest.Start(t, "--shutdown-timeout", "1h")
	deaf(t, s)
	asked := time.Now()
	s.Signal(syscall.SIGTERM)
	s.Wants(t, "msg=stopping")
	signalUntil(t, s.Exited(), func() { s.Signal(syscall.SIGTERM) })
	if code := s.Wait(t); code != 1 || !strings.Contains(s.Output(), "second signal: exiting") {
		t.Errorf("the server exits with code %d, want 1:\n%s", code, s.Output())
	}
	if took := time.Since(asked); took < time.Second {
		t.Errorf("the server ends %v after the first signal, want a second at least", took)
	}
}

func TestShutdownTimeoutClosesClientsThatReadNoReplies(t *testing.T) {
	s := simbatest.Start(t, "--shutdown-timeout", "30ms")
	deaf(t, s)
	s.Signal(syscall.SIGTERM)
	if code := s.Wait(t); code != 0 {
		t.Errorf("the server exits with code %d, want 0", code)
	}
	s.Wants(t, `closed clients that did not read their replies in time.* shutdown-timeout=30ms`)
}

// If the reader of the log has ended, the server writes to a broken pipe. By default, that ends a
// process.
func TestServerOutlivesTheReaderOfItsLog(t *testing.T) {
	s := simbatest.StartUnread(t, "--log-level", "debug")
	s.CloseLog()
	// The server logs the end of a connection before it decrements the count of clients.
	simbatest.AwaitBlocked(t, s.Addr, 0)
	c, err := redis.Dial("tcp", s.Addr)
	simbatest.Must(t, err)
	defer c.Close()
	simbatest.Await(t, "the server has one client", func() bool {
		n, err := simbatest.ClientsInfo(c, "connected_clients")
		simbatest.Must(t, err)
		return n == 1
	})
	s.Terminate()
	if code := s.Ended(t); code != 0 {
		t.Errorf("the server exits with code %d, want 0", code)
	}
}
