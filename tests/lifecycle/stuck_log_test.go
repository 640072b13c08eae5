package lifecycle

import (
	"bufio"
	"bytes"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// unread is a server whose log nobody reads.
type unread struct{ *simbatest.Unread }

func startUnread(t *testing.T, args ...string) *unread {
	t.Helper()
	return &unread{simbatest.StartUnread(t, args...)}
}

// client returns a client for which a late reply is an error.
func (s *unread) client(t *testing.T) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr, ReadTimeout: simbatest.Patience, MaxRetries: -1})
	t.Cleanup(func() { c.Close() })
	return c
}

// flood sends commands that the server writes to the audit log, and reads the replies.
func (s *unread) flood(t *testing.T, commands int) {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr)
	simbatest.Must(t, err)
	defer c.Close()
	const reply = "*2\r\n$10\r\nmaxclients\r\n$5\r\n10000\r\n"
	// If the write fails, replies are missing below.
	go func() { _, _ = c.Write(bytes.Repeat([]byte("CONFIG GET maxclients\r\n"), commands)) }()
	simbatest.Must(t, c.SetReadDeadline(time.Now().Add(simbatest.Patience)))
	r := bufio.NewReader(c)
	for i := range commands * strings.Count(reply, "\n") {
		if _, err := r.ReadSlice('\n'); err != nil {
			t.Fatalf("the replies end after %d lines: %v", i, err)
		}
	}
}

// mustAnswer sends three commands that add lines to the audit log, and checks the replies.
func (s *unread) mustAnswer(t *testing.T, c *goredis.Client) {
	t.Helper()
	simbatest.Acquire(t, c, "job", "a", 600_000)
	if n, err := c.Do(t.Context(), "SIMBA.BREAK", "job").Int(); n != 1 || err != nil {
		t.Errorf("BREAK returns %d, %v", n, err)
	}
	if ok, err := c.FlushAll(t.Context()).Result(); ok != "OK" || err != nil {
		t.Errorf("FLUSHALL returns %s, %v", ok, err)
	}
	if err := c.Do(t.Context(), "AUTH", "nobody", "guess").Err(); err == nil || !strings.HasPrefix(err.Error(), "WRONGPASS") {
		t.Errorf("AUTH with a wrong password returns %v", err)
	}
}

var auditLost = regexp.MustCompile(`level=WARN msg="audit lines were dropped while the log's reader did not keep up" lines=(\d+)$`)

func TestAStuckLogReaderBlocksNoClientAndLostAuditLinesAreCounted(t *testing.T) {
	s := startUnread(t)
	c := s.client(t)
	s.flood(t, 700) // fills the pipe
	s.mustAnswer(t, c)
	const flooded = 20_000 // fills the buffer of audit lines, too
	s.flood(t, flooded)
	s.mustAnswer(t, c)

	audited, lost := 0, 0
	for lost == 0 && s.Log.Scan() {
		if match := auditLost.FindStringSubmatch(s.Log.Text()); match != nil {
			lost, _ = strconv.Atoi(match[1])
		} else if strings.Contains(s.Log.Text(), `msg="audit: `) {
			audited++
		}
	}
	if want := 700 + flooded + 2*3; audited+lost != want {
		t.Errorf("the log has %d audit lines and reports %d as lost, want %d together", audited, lost, want)
	}
	if err := c.Do(t.Context(), "SIMBA.BREAK", "later").Err(); err != nil {
		t.Error(err)
	}
	for s.Log.Scan() && !strings.Contains(s.Log.Text(), "command=simba.break mutex=later") {
	}
	s.Terminate()
	last := ""
	for s.Log.Scan() {
		last = s.Log.Text()
	}
	if code := s.Ended(t); code != 0 || !strings.Contains(last, "msg=stopping") {
		t.Errorf("the server exits with code %d, and the last line of its log is %s", code, last)
	}
}

func TestAStuckLogReaderDoesNotOutlastTheShutdownTimeout(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	s := startUnread(t, "--shutdown-timeout", timeout.String())
	c := s.client(t)
	_, token := simbatest.Acquire(t, c, "kept", "a", 600_000)
	s.flood(t, 700)
	s.Terminate()
	began := time.Now()
	code := s.Ended(t)
	// Two waits in a row, for the clients and for the log, could take twice the timeout.
	if took := time.Since(began); code != 0 || took > 2*timeout {
		t.Errorf("the server exits with code %d after %v, want 0 within %v", code, took, 2*timeout)
	}
	if status, kept := simbatest.Acquire(t, simbatest.GoRedis(t, simbatest.StartIn(t, s.Dir)), "kept", "a", 600_000); status != "renewed" || kept != token {
		t.Errorf("after the restart ACQUIRE returns %s with token %d, want renewed with token %d", status, kept, token)
	}
}

func TestAStuckLogReaderDoesNotDelayASecondSignal(t *testing.T) {
	s := startUnread(t, "--shutdown-timeout", "1h")
	s.flood(t, 700)
	signalUntil(t, s.Exited, s.Terminate)
	if code := s.Ended(t); code != 1 {
		t.Errorf("the server exits with code %d, want 1", code)
	}
}
