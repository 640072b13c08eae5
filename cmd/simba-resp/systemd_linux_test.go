package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

func TestWatchdogIsFedAfterEachPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var hung, failing atomic.Bool
		start := time.Now()
		var mu sync.Mutex       // protects fed and failures
		var fed []time.Duration // times of the reports, since start
		failures := 0
		ping := func(ctx context.Context) error {
			switch {
			case failing.Load():
				return errors.New("too many open files")
			case hung.Load():
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		go feedWatchdog(ctx, 20*time.Second, ping, func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failures++
				return
			}
			fed = append(fed, time.Since(start))
		})
		until := func(d time.Duration) (reports []time.Duration, failed int) {
			time.Sleep(time.Until(start.Add(d)))
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(fed), failures
		}
		if fed, _ := until(11 * time.Second); !slices.Equal(fed, []time.Duration{0, 5 * time.Second, 10 * time.Second}) {
			t.Errorf("in the first 11 s the watchdog was fed after %v, want 0 s, 5 s and 10 s", fed)
		}
		hung.Store(true)
		if fed, failed := until(time.Hour); len(fed) != 3 || failed < 300 {
			t.Errorf("while PING hung for an hour, feedWatchdog reported success after %v, and %d failures; want no more successes, and at least 300 failures", fed, failed)
		}
		hung.Store(false)
		failing.Store(true)
		if fed, _ := until(time.Hour + time.Minute); len(fed) != 3 {
			t.Errorf("while PING failed, the watchdog was fed: the times are %v, want only the first 3", fed)
		}
		failing.Store(false)
		if fed, _ := until(time.Hour + time.Minute + 20*time.Second); len(fed) < 6 {
			t.Errorf("after PING succeeded again, the watchdog was fed after %v; want at least 3 more times", fed)
		}
		hung.Store(true)
		_, before := until(time.Hour + time.Minute + 26*time.Second)
		cancel() // during a PING
		if _, failed := until(2 * time.Hour); failed != before {
			t.Error("feedWatchdog reported the end of the context as a failed PING")
		}
	})
}

// manager receives the reports of a service, as systemd does.
type manager struct {
	mu      sync.Mutex // protects reports
	reports []string
}

// newManager sets NOTIFY_SOCKET for the test.
func newManager(t *testing.T) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("NOTIFY_SOCKET", path)
	m := new(manager)
	var receiving sync.WaitGroup
	receiving.Go(func() {
		b := make([]byte, 4096)
		for {
			n, err := conn.Read(b)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.reports = append(m.reports, string(b[:n]))
			m.mu.Unlock()
		}
	})
	t.Cleanup(func() { conn.Close(); receiving.Wait() })
	return m
}

// count returns how many reports contain that text.
func (m *manager) count(text string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.reports {
		if strings.Contains(r, text) {
			n++
		}
	}
	return n
}

// watchedLog is a log that a test reads while the server writes it.
type watchedLog struct {
	mu sync.Mutex // protects b, which the server writes while the test reads
	b  bytes.Buffer
}

func (l *watchedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *watchedLog) count(pattern string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(regexp.MustCompile(pattern).FindAll(l.b.Bytes(), -1))
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for late := time.Now().Add(need.Hang); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("this did not happen within %v: %s", need.Hang, what)
		}
	}
}

// hanging is the handler of a server with a bug: ECHO does not return.
type hanging struct {
	resp.Handler
	hangs, release chan struct{}
}

func (h *hanging) Execute(c *resp.Conn, args [][]byte) {
	if string(args[0]) == "ECHO" {
		close(h.hangs)
		<-h.release
	}
	h.Handler.Execute(c, args)
}

func TestWatchdogIsNotFedWhileTheServingLoopHangs(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", "200000")
	t.Setenv("WATCHDOG_PID", "") // any process
	c, err := loadTest(t, []string{"--addr", "127.0.0.1:0", "--data-dir", t.TempDir() + "/data"}, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	log := new(watchedLog)
	a, err := newApp(t.Context(), c, newTestLogs(t, c, log), func() {})
	if err != nil {
		t.Fatal(err)
	}
	h := &hanging{a.handler, make(chan struct{}), make(chan struct{})}
	a.server = resp.NewServer(resp.Config{Committer: a.engine}, h)
	a.handler.Attach(a.server)
	a.start()
	s := reportToSystemd(a)
	until(t, "READY", func() bool { return m.count("READY=1\nSTATUS=Serving") == 1 })
	until(t, "WATCHDOG", func() bool { return m.count("WATCHDOG=1") > 2 })
	if log.count("WatchdogSec is too short") != 1 {
		t.Errorf("the log does not warn of a short WatchdogSec: %s", &log.b)
	}

	client := dial(t, a)
	if err := client.Send("ECHO", ""); err != nil {
		t.Fatal(err)
	}
	if err := client.Flush(); err != nil {
		t.Fatal(err)
	}
	<-h.hangs
	const failure = "does not answer its own PING"
	since := log.count(failure)
	until(t, "a PING fails", func() bool { return log.count(failure) > since })
	fed := m.count("WATCHDOG=1") // includes the last PING before the hang
	until(t, "more PINGs fail", func() bool { return log.count(failure) > since+3 })
	if n := m.count("WATCHDOG=1"); n != fed {
		t.Errorf("while the serving loop hung, the watchdog got %d reports, want none", n-fed)
	}
	close(h.release)
	until(t, "WATCHDOG after the hang", func() bool { return m.count("WATCHDOG=1") > fed })
	s.stop("Stopping")
	if err := a.stop(t.Context()); err != nil {
		t.Error(err)
	}
	until(t, "STOPPING", func() bool { return m.count("STOPPING=1") == 1 })
}

func TestWithoutNotifySocketNothingIsReported(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	var log bytes.Buffer
	a, _ := newTestApp(t, &log)
	a.start()
	s := reportToSystemd(a)
	s.reload(func() {})
	s.stop("Stopping")
	a.log.out.flush(time.Minute)
	if strings.Contains(log.String(), "systemd") {
		t.Errorf("the log mentions systemd: %s", &log)
	}
}
