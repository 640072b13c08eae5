package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
)

const backendTimeout = 3 * time.Second

const unavailable = "TRYAGAIN engine redis unavailable: dial tcp 127.0.0.1:6379: connect: connection refused"

// lostStore returns a backend whose store fails each request after the given time.
func lostStore(after time.Duration) *fakeBackend {
	return failingStore(after, &simba.UnavailableError{Engine: "redis", Err: errors.New("dial tcp 127.0.0.1:6379: connect: connection refused")})
}

func failingStore(after time.Duration, err error) *fakeBackend {
	fail := func() error { time.Sleep(after); return err }
	return &fakeBackend{
		stats:   simba.Stats{Held: -1}, // unknown, so DBSIZE asks the store
		acquire: func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) { return simba.Outcome{}, nil, fail() },
		release: func(simba.ReleaseRequest) (bool, simba.Seq, error) { return false, 0, fail() },
		guard:   func(simba.GuardRequest) (simba.Outcome, error) { return simba.Outcome{}, fail() },
		owner:   func(string) (simba.Tenure, simba.Seq, error) { return simba.Tenure{}, 0, fail() },
		queue:   func(string, int) ([]simba.QueueEntry, simba.Seq, error) { return nil, 0, fail() },
		scan:    func(simba.ScanRequest) (simba.ScanPage, simba.Seq, error) { return simba.ScanPage{}, 0, fail() },
		check:   func(string, uint64) (bool, simba.Seq, error) { return false, 0, fail() },
		break_:  func(string, string) (bool, simba.Seq, error) { return false, 0, fail() },
		subscribed: func(ctx context.Context, _ string) error {
			select {
			case <-time.After(after):
			case <-ctx.Done():
			}
			return err
		},
	}
}

var storeCommands = []string{
	"SIMBA.ACQUIRE m c 1000", "SIMBA.ACQUIRE m c 1000 WAIT 0", "SIMBA.ACQUIRE m c 1000 SESSION", "SIMBA.GUARD m c 1000", "SIMBA.RELEASE m c",
	"SIMBA.OWNER m", "SIMBA.QUEUE m", "SIMBA.SCAN 0", "SIMBA.CHECK m 1", "SIMBA.BREAK m", "SCAN 0", "TYPE simba:{m}", "STRLEN simba:{m}",
	"DBSIZE",
}

// storeless are the commands that read or change mutexes and ask no store.
var storeless = map[string]string{
	"simba.history": "each server keeps its own events",
	"flushall":      "only the embedded engine serves it",
	"flushdb":       "only the embedded engine serves it",
}

func TestStoreCommandsAreComplete(t *testing.T) {
	for name := range backendRows() {
		call := strings.ToUpper(strings.ReplaceAll(name, "|", " "))
		listed := slices.ContainsFunc(storeCommands, func(c string) bool { return c == call || strings.HasPrefix(c, call+" ") })
		if _, exempt := storeless[name]; listed == exempt {
			t.Errorf("%s reads or changes mutexes: add a call of it to storeCommands, or add it to storeless with the reason", name)
		}
	}
}

func TestErrorsOfTheStoreAreReplies(t *testing.T) {
	for want, backend := range map[string]*fakeBackend{unavailable: lostStore(0), misconfigured: failingStore(0, errNoTable)} {
		p := newSite(t, Config{Backend: backend}).dial()
		for _, command := range storeCommands {
			p.expect(command, failed(want))
		}
		code, _, _ := strings.Cut(want, " ")
		if info := infoFields(t, p.do("INFO errorstats")); len(info) != 1 || info["errorstat_"+code] == "" {
			t.Errorf("INFO errorstats shows %v, want only %s", info, code)
		}
	}
}

func TestAPipelineWaitsOnceForAStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, Config{Backend: lostStore(backendTimeout)})
		p := s.dial()
		for range 2 { // the next pipeline calls the store again
			began := time.Now()
			p.send(storeCommands...)
			for _, command := range storeCommands {
				if got := p.reply(); got != failed(unavailable) {
					t.Errorf("%s replied %q, want TRYAGAIN", command, got)
				}
			}
			if took := time.Since(began); took != backendTimeout {
				t.Errorf("the pipeline took %v, want %v", took, backendTimeout)
			}
		}
		stats := s.x.Stats()
		for of, counts := range map[Count][]Count{{"error", 6}: stats.Acquires, {"error", 2}: stats.Guards} {
			if got := counts[len(counts)-1]; got != of {
				t.Errorf("%v requests are counted, want %v", got, of)
			}
		}
		p.send("SIMBA.OWNER m", "SIMBA.HISTORY m", "PING")
		p.reply()
		if history, pong := p.reply(), p.reply(); history != "*0\r\n" || pong != "+PONG\r\n" {
			t.Errorf("after a store outage SIMBA.HISTORY and PING replied %q and %q, want no events and PONG", history, pong)
		}
	})
}

func TestATransactionWaitsOnceForAStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSite(t, Config{Backend: lostStore(backendTimeout)}).dial()
		p.expect("MULTI", ok)
		for range 10 {
			p.expect("SIMBA.GUARD m c 1000", "+QUEUED\r\n")
		}
		began := time.Now()
		if got, want := p.do("EXEC"), "*10\r\n"+strings.Repeat(failed(unavailable), 10); got != want {
			t.Errorf("EXEC replied %q, want 10 times TRYAGAIN", got)
		}
		if took := time.Since(began); took != backendTimeout {
			t.Errorf("EXEC took %v, want %v", took, backendTimeout)
		}
	})
}

func TestAPipelineGoesOnAfterAQuickFailure(t *testing.T) {
	backend := lostStore(0)
	owner := backend.owner
	backend.owner = func(m string) (simba.Tenure, simba.Seq, error) {
		if m == "away" { // the node that has this mutex is down
			return owner(m)
		}
		return simba.Tenure{}, 0, nil
	}
	p := newSite(t, Config{Backend: backend}).dial()
	p.send("SIMBA.OWNER away", "SIMBA.OWNER m")
	if first, second := p.reply(), p.reply(); first != failed(unavailable) || second != "$-1\r\n" {
		t.Errorf("the replies are %q and %q, want TRYAGAIN and a free mutex", first, second)
	}
}

func TestSubscriptionsAreReportedDuringAStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := lostStore(backendTimeout)
		p := newSite(t, Config{Backend: backend}).dial()
		began := time.Now()
		p.send("SUBSCRIBE a b c")
		for range 3 {
			p.reply()
		}
		if took := time.Since(began); took != backendTimeout {
			t.Errorf("SUBSCRIBE took %v, want %v", took, backendTimeout)
		}
		if got := fmt.Sprint(backend.takeCalls()); got != "[subscribed a pattern=false subscribed b pattern=false subscribed c pattern=false]" {
			t.Errorf("the backend was called with %s, want each channel", got)
		}
	})
}

func TestTheEndOfASessionWaitsOnceForAStoreOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		backend := granting()
		backend.release = lostStore(backendTimeout).release
		var log bytes.Buffer
		s := newSite(t, Config{Backend: backend, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		p := s.dial()
		for i := range 10 {
			p.do(fmt.Sprintf("SIMBA.ACQUIRE m%d c 1000 SESSION", i))
		}
		backend.takeCalls()
		p.nc.Close()
		time.Sleep(backendTimeout)
		synctest.Wait()
		if left := len(s.server.Conns()); left != 0 {
			t.Errorf("%d connections are still open, want none", left)
		}
		if got := backend.takeCalls(); len(got) != 1 {
			t.Errorf("the backend was called with %q, want one call", got)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 1 || !strings.Contains(log.String(), "leases=10") {
			t.Errorf("the log is\n%s\nwant one line with leases=10", &log)
		}
	})
}

func TestASessionReleasesALeaseThatItMayHaveBound(t *testing.T) {
	for reply, store := range map[string]*fakeBackend{unavailable: lostStore(0), misconfigured: failingStore(0, errNoTable)} {
		backend := granting()
		backend.acquire = store.acquire
		backend.guard = func(simba.GuardRequest) (simba.Outcome, error) {
			return simba.Outcome{Status: simba.StatusRenewed, Owner: "c", Token: 9}, nil
		}
		synctest.Test(t, func(t *testing.T) {
			p := newSite(t, Config{Backend: backend}).dial()
			p.expect("SIMBA.ACQUIRE m c 1000 SESSION", failed(reply))
			p.expect("SIMBA.ACQUIRE n c 1000", failed(reply))
			p.do("SIMBA.GUARD m c 1000")
			backend.takeCalls()
			p.nc.Close()
			synctest.Wait()
			if got := fmt.Sprint(backend.takeCalls()); got != `[release m c token=0 session=true reason="session closed"]` {
				t.Errorf("the backend was called with %s, want a release of m", got)
			}
		})
	}
}

func TestASweepStopsAtTheFirstStoreError(t *testing.T) {
	backend := granting()
	asked := 0
	backend.check = func(string, uint64) (bool, simba.Seq, error) {
		asked++
		return false, 0, &simba.UnavailableError{Engine: "redis", Err: errors.New("i/o timeout")}
	}
	p := newSite(t, Config{Backend: backend}).dial()
	for i := range firstSweep {
		p.do(fmt.Sprintf("SIMBA.ACQUIRE m%d c 1000 SESSION", i))
	}
	if asked != 1 {
		t.Errorf("the sweep called Check %d times, want once", asked)
	}
}

// pagesOf returns a backend that does not count its mutexes. Its Scan has the given number of
// pages; 0 = pages without end. Each call of Scan takes scanTime.
func pagesOf(pages uint64, scanTime time.Duration) *fakeBackend {
	return &fakeBackend{
		stats: simba.Stats{Held: -1, Mutexes: -1, Polling: -1},
		scan: func(r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
			time.Sleep(scanTime)
			page := simba.ScanPage{Cursor: r.Cursor + 1, Mutexes: []string{"a", "b"}}
			if page.Cursor == pages {
				page.Cursor = 0
			}
			return page, 0, nil
		},
	}
}

func TestDbsizeCountsMutexesForEnginesWithoutAFigure(t *testing.T) {
	backend := pagesOf(3, 0)
	p := newSite(t, Config{Backend: backend, StoreTimeout: backendTimeout}).dial()
	p.expect("DBSIZE", ":6\r\n")
	if got := backend.takeCalls(); len(got) != 3 || got[0] != "scan 0 count=10000 held=true contended=false match=false" {
		t.Errorf("the backend was called with %q, want 3 scans", got)
	}
}

func TestDbsizeTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSite(t, Config{Backend: pagesOf(0, time.Second), StoreTimeout: backendTimeout}).dial()
		began := time.Now()
		p.expect("DBSIZE", failed(string(errCounting)))
		if took := time.Since(began); took > backendTimeout+time.Second {
			t.Errorf("DBSIZE took %v, want at most %v", took, backendTimeout+time.Second)
		}
		counts := lostStore(0)
		counts.stats.Held = 3
		p = newSite(t, Config{Backend: counts, StoreTimeout: backendTimeout}).dial()
		p.expect("DBSIZE", ":3\r\n")
	})
	newSite(t, Config{Backend: lostStore(0), StoreTimeout: backendTimeout}).dial().expect("DBSIZE", failed(unavailable))
}

func TestInfoOmitsUnknownFigures(t *testing.T) {
	p := newSite(t, Config{Backend: pagesOf(1, 0), Info: Info{Engine: "redis", Survives: true}}).dial()
	info := infoFields(t, p.do("INFO everything"))
	for _, name := range []string{"mutexes", "mutexes_held", "waiters_polling", "db0", "durability"} {
		if value, ok := info[name]; ok {
			t.Errorf("INFO shows %s:%s, which the engine does not know", name, value)
		}
	}
	if info["engine"] != "redis" || info["survives_restart"] != "yes" || info["waiters_blocked"] != "0" {
		t.Errorf("INFO shows engine:%s survives_restart:%s waiters_blocked:%s, want redis, yes and 0", info["engine"], info["survives_restart"], info["waiters_blocked"])
	}
}
