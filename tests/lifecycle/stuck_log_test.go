package lifecycle

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// readyLine is what a server logs when it serves, with its address.
const readyLine = `msg=ready .*addr=(\S+)`

// unread is a server whose log goes to a pipe that is read only when the test does.
type unread struct {
	cmd    *exec.Cmd
	addr   string
	log    *bufio.Scanner
	exited chan struct{}
}

func startUnread(t *testing.T, args ...string) *unread {
	t.Helper()
	var ends [2]int // a pipe as a shell makes it: a write to a full pipe blocks
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	out, in := os.NewFile(uintptr(ends[0]), "log"), os.NewFile(uintptr(ends[1]), "log")
	t.Cleanup(func() { out.Close() })
	defer in.Close()
	args = append([]string{"--addr", "127.0.0.1:0", "--data-dir", t.TempDir() + "/data"}, args...)
	s := &unread{cmd: exec.Command(simbatest.Binary(t), args...), log: bufio.NewScanner(out), exited: make(chan struct{})}
	s.cmd.Env, s.cmd.Stderr = simbatest.Environ(), in
	err := simbatest.StartCmd(s.cmd, func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // the tests read ProcessState
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
	})
	ready := regexp.MustCompile(readyLine)
	for s.addr == "" && s.log.Scan() {
		if match := ready.FindStringSubmatch(s.log.Text()); match != nil {
			s.addr = match[1]
		}
	}
	if s.addr == "" {
		t.Fatal("it ended before it served")
	}
	return s
}

// client connects a client that fails if a reply does not come in time.
func (s *unread) client(t *testing.T) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.addr, ReadTimeout: 10 * time.Second, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// flood sends commands that are audited, and reads their replies.
func (s *unread) flood(t *testing.T, commands int) {
	t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const reply = "*2\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n"
	// an error shows in the replies
	go func() { _, _ = c.Write(bytes.Repeat([]byte("CONFIG GET maxclients\r\n"), commands)) }()
	if err := c.SetReadDeadline(time.Now().Add(simbatest.Patience)); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(c)
	for i := range commands * strings.Count(reply, "\n") {
		if _, err := r.ReadSlice('\n'); err != nil {
			t.Fatalf("after %d lines of replies: %v", i, err)
		}
	}
}

// ended waits for the process and returns its exit code.
func (s *unread) ended(t *testing.T, limit time.Duration) int {
	t.Helper()
	select {
	case <-s.exited:
	case <-time.After(limit):
		t.Fatalf("it goes on after %v", limit)
	}
	return s.cmd.ProcessState.ExitCode()
}

// mustAnswer sends commands that write a line to the log.
func (s *unread) mustAnswer(t *testing.T, c *goredis.Client) {
	t.Helper()
	simbatest.Acquire(t, c, "job", "a", 600_000)
	if n, err := c.Do(t.Context(), "SIMBA.BREAK", "job").Int(); n != 1 || err != nil {
		t.Errorf("BREAK: %d, %v", n, err)
	}
	if ok, err := c.FlushAll(t.Context()).Result(); ok != "OK" || err != nil {
		t.Errorf("FLUSHALL: %s, %v", ok, err)
	}
	if err := c.Do(t.Context(), "AUTH", "nobody", "guess").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGPASS") {
		t.Errorf("AUTH: %v", err)
	}
}

var auditLost = regexp.MustCompile(`level=WARN msg="audit lines were dropped while the log's reader did not keep up" lines=(\d+)$`)

func TestAStuckLogReaderBlocksNoClientAndLostAuditLinesAreCounted(t *testing.T) {
	s := startUnread(t)
	c := s.client(t)
	s.flood(t, 700) // fill the pipe
	s.mustAnswer(t, c)
	const flooded = 20_000 // fill the buffer of the audit lines
	s.flood(t, flooded)
	s.mustAnswer(t, c)

	audited, lost := 0, 0
	for lost == 0 && s.log.Scan() {
		if match := auditLost.FindStringSubmatch(s.log.Text()); match != nil {
			lost, _ = strconv.Atoi(match[1])
		} else if strings.Contains(s.log.Text(), `msg="audit: `) {
			audited++
		}
	}
	if want := 700 + flooded + 2*3; audited+lost != want {
		t.Errorf("%d audit lines and %d lost ones, want %d together", audited, lost, want)
	}
	if err := c.Do(t.Context(), "SIMBA.BREAK", "later").Err(); err != nil {
		t.Error(err)
	}
	for s.log.Scan() && !strings.Contains(s.log.Text(), "command=simba.break mutex=later") {
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	last := ""
	for s.log.Scan() {
		last = s.log.Text()
	}
	if code := s.ended(t, simbatest.Patience); code != 0 || !strings.Contains(last, "msg=stopping") {
		t.Errorf("exit code %d, the last line is %s", code, last)
	}
}

func TestAStuckLogReaderDoesNotOutlastTheShutdownTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	s := startUnread(t, "--shutdown-timeout", timeout.String())
	c := s.client(t)
	_, token := simbatest.Acquire(t, c, "kept", "a", 600_000)
	s.flood(t, 700)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	// A stop that waited for the clients, and then again for the log, would take twice as long.
	if code := s.ended(t, 2*timeout); code != 0 {
		t.Errorf("exit code %d", code)
	}
	dir := s.cmd.Args[4]
	if status, kept := simbatest.Acquire(t, simbatest.GoRedis(t, simbatest.StartIn(t, dir)), "kept", "a", 600_000); status != "renewed" || kept != token {
		t.Errorf("after the restart: %s with token %d, had %d", status, kept, token)
	}
}

func TestALogReaderThatResumesInTheShutdownTimeoutGetsAllLines(t *testing.T) {
	s := startUnread(t, "--shutdown-timeout", "1m")
	s.flood(t, 1000)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for { // no client is connected any more, so only the log is left
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			break
		}
		c.Close()
	}
	var log strings.Builder
	for s.log.Scan() {
		log.WriteString(s.log.Text() + "\n")
	}
	if n := strings.Count(log.String(), "command=config|get"); n != 1000 || !strings.Contains(log.String(), "msg=stopping") {
		t.Errorf("%d of 1000 audit lines:\n%s", n, log.String()[max(0, log.Len()-1000):])
	}
	if code := s.ended(t, simbatest.Patience); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestAStuckLogReaderDoesNotDelayASecondSignal(t *testing.T) {
	s := startUnread(t, "--shutdown-timeout", "1h")
	s.flood(t, 700)
	asked := time.NewTicker(100 * time.Millisecond)
	defer asked.Stop()
	for running := true; running; {
		select {
		case <-s.exited:
			running = false
		case <-asked.C:
			_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails once the process has ended
		case <-time.After(simbatest.Patience):
			t.Fatal("it goes on")
		}
	}
	if code := s.cmd.ProcessState.ExitCode(); code != 1 {
		t.Errorf("exit code %d", code)
	}
}
