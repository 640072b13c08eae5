package tests

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
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

// blockedClients asks the server how many clients are blocked.
func blockedClients(addr string) (int, error) {
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return ofClients(c, "blocked_clients")
}

// ofClients returns a figure of INFO clients.
func ofClients(c redis.Conn, field string) (int, error) {
	info, err := redis.String(c.Do("INFO", "clients"))
	if err != nil {
		return 0, err
	}
	match := regexp.MustCompile(`(?m)^` + field + `:(\d+)\r$`).FindStringSubmatch(info)
	if match == nil {
		return 0, fmt.Errorf("INFO clients says %q", info)
	}
	return strconv.Atoi(match[1])
}

func TestStopUnblocksWaitersAndKeepsLeases(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
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

// deaf connects a client that takes no replies, although the server owes it more
// than the network holds: a stop has to wait for it.
func deaf(t *testing.T, s *server) {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	// One reply of more than ten megabytes: once it begins, the server is bound to finish it.
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

// Supervisors may deliver one wish twice; who asks again after a second is impatient.
func TestOnlyASignalThatComesLaterCutsTheStopShort(t *testing.T) {
	s := start(t, "--shutdown-timeout", "1h")
	deaf(t, s)
	asked := time.Now()
	s.signal(t, syscall.SIGTERM)
	s.wants(t, "msg=stopping")
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for running := true; running; {
		select {
		case <-s.exited:
			running = false
		case <-again.C:
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails once it is gone
		}
	}
	if code := s.wait(t); code != 1 || !strings.Contains(s.out.String(), "second signal: exiting") {
		t.Errorf("exit code %d:\n%s", code, s.out.String())
	}
	if took := time.Since(asked); took < time.Second {
		t.Errorf("signals within a second of the first end it: %v", took)
	}
}

func TestShutdownTimeoutCutsClientsThatTakeNoReplies(t *testing.T) {
	s := start(t, "--shutdown-timeout", "30ms")
	deaf(t, s)
	s.signal(t, syscall.SIGTERM)
	if code := s.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	s.wants(t, `closed clients that did not read their replies in time.* shutdown-timeout=30ms`)
}

// Who reads the log may die. The server then writes to a broken pipe, which by
// default ends a process.
func TestServerOutlivesTheReaderOfItsLog(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(simbatest.Binary(t), "--addr", "127.0.0.1:0", "--data-dir", t.TempDir()+"/data", "--log-level", "debug")
	cmd.Env, cmd.Stderr = cleanEnv(), in
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	in.Close()
	ready, addr := regexp.MustCompile(readyLine), ""
	for log := bufio.NewScanner(out); addr == "" && log.Scan(); {
		if match := ready.FindStringSubmatch(log.Text()); match != nil {
			addr = match[1]
		}
	}
	out.Close()

	// The end of each connection is logged, before the server counts it as gone.
	blocked(t, addr, 0)
	c, err := redis.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for end := time.Now().Add(patience); ; {
		info, err := redis.String(c.Do("INFO", "clients"))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(info, "connected_clients:1\r\n") {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the first connection is still there: %s", info)
		}
	}
	if pong, err := redis.String(c.Do("PING")); err != nil || pong != "PONG" {
		t.Errorf("PING: %s, %v", pong, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("the stop: %v", err)
		}
	case <-time.After(patience):
		t.Error("it does not exit")
	}
}
