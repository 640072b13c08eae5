package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

func TestWatchdogIsFedFourTimesInEachTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		start := time.Now()
		var fed []time.Duration
		feedWatchdog(ctx, 20*time.Second, func() {
			if fed = append(fed, time.Since(start)); len(fed) == 3 {
				cancel()
			}
		})
		if !slices.Equal(fed, []time.Duration{0, 5 * time.Second, 10 * time.Second}) {
			t.Errorf("the watchdog was fed after %v, want 0 s, 5 s and 10 s", fed)
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
	must(t, err)
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

// hanging is an engine with a bug: a lock hangs.
type hanging struct {
	liveBackend
	lock  sync.Mutex // protects asked
	asked int        // how often Stats has returned
}

func (h *hanging) Stats() simba.Stats {
	h.lock.Lock()
	defer h.lock.Unlock()
	h.asked++
	return h.liveBackend.Stats()
}

func TestWatchdogIsNotFedWhileALockHangs(t *testing.T) {
	m := newManager(t)
	t.Setenv("WATCHDOG_USEC", "200000")
	t.Setenv("WATCHDOG_PID", "") // any process
	a, _ := newTestApp(t, io.Discard)
	h := &hanging{liveBackend: a.engine}
	a.engine = h
	a.start()
	s := reportToSystemd(a)
	eventually(t, "WATCHDOG", func() bool { return m.count("WATCHDOG=1") > 2 })
	h.lock.Lock()
	fed := h.asked          // a report follows each Stats, so there are no more, also on a busy machine
	time.Sleep(time.Second) // time for reports that follow no Stats
	if n := m.count("WATCHDOG=1"); n > fed {
		t.Errorf("while a lock hung, the watchdog got %d reports, want at most %d", n, fed)
	}
	h.lock.Unlock()
	eventually(t, "WATCHDOG after the hang", func() bool { return m.count("WATCHDOG=1") > fed })
	s.stop()
}

func TestWithoutNotifySocketNothingIsReported(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	var log bytes.Buffer
	a, _ := newTestApp(t, &log)
	a.start()
	s := reportToSystemd(a)
	s.reload(func() {})
	s.stop()
	a.log.out.flush(time.Minute)
	if strings.Contains(log.String(), "systemd") {
		t.Errorf("the log mentions systemd: %s", &log)
	}
}
