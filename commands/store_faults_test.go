package commands

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/need"
)

const misconfigured = "ERR engine mysql misconfigured: table simba_mutex does not exist"

var errNoTable = &simba.MisconfiguredError{Engine: "mysql", Err: errors.New("table simba_mutex does not exist")}

func refusingStore() *fakeBackend {
	return &fakeBackend{
		stats: simba.Stats{Held: -1}, // unknown, so DBSIZE asks the store
		acquire: func(simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			return simba.Outcome{}, nil, errNoTable
		},
		release: func(simba.ReleaseRequest) (bool, simba.Seq, error) { return false, 0, errNoTable },
		guard:   func(simba.GuardRequest) (simba.Outcome, error) { return simba.Outcome{}, errNoTable },
		owner:   func(string) (simba.Tenure, simba.Seq, error) { return simba.Tenure{}, 0, errNoTable },
		queue:   func(string, int) ([]simba.QueueEntry, simba.Seq, error) { return nil, 0, errNoTable },
		scan:    func(simba.ScanRequest) (simba.ScanPage, simba.Seq, error) { return simba.ScanPage{}, 0, errNoTable },
		check:   func(string, uint64) (bool, simba.Seq, error) { return false, 0, errNoTable },
		break_:  func(string, string) (bool, simba.Seq, error) { return false, 0, errNoTable },
	}
}

func TestARefusingStoreHasItsOwnError(t *testing.T) {
	p := newSite(t, Config{Backend: refusingStore()}).dial()
	for _, command := range storeCommands {
		p.expect(command, failed(misconfigured))
	}
	if info := p.do("INFO errorstats"); !strings.Contains(info, "errorstat_ERR:count=") || strings.Contains(info, "errorstat_TRYAGAIN") {
		t.Errorf("INFO errorstats is\n%s\nwant ERR without TRYAGAIN", info)
	}
}

func TestARefusingStoreIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newSite(t, Config{Backend: refusingStore(), Logger: slog.New(slog.NewTextHandler(&log, nil))}).dial()
		for range 5 {
			p.expect("SIMBA.OWNER m", failed(misconfigured))
		}
		line := `level=ERROR msg="the store refuses what the engine needs, until an operator mends it" engine=mysql err="table simba_mutex does not exist"`
		if got := log.String(); strings.Count(got, line) != 1 || strings.Count(got, "\n") != 1 {
			t.Errorf("after five errors the log is\n%s\nwant one line", got)
		}
		time.Sleep(faultPause)
		log.Reset()
		p.expect("SIMBA.OWNER m", failed(misconfigured))
		if got := log.String(); strings.Count(got, line+" unlogged=4") != 1 {
			t.Errorf("a minute later the log is\n%s\nwant unlogged=4", got)
		}
	})
}

func TestEachFaultOfTheStoreIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		faults := storeFaults{log: slog.New(slog.NewTextHandler(&log, nil))}
		meet := func(text string) { faults.met(&simba.MisconfiguredError{Engine: "redis", Err: errors.New(text)}) }
		meet("key a is foreign")
		meet("key a is foreign")
		meet("no right to publish")
		if got := log.String(); strings.Count(got, "key a") != 1 || strings.Count(got, "no right") != 1 {
			t.Errorf("after two faults the log is\n%s\nwant a line for each", got)
		}
		log.Reset()
		for i := range 1000 {
			meet(fmt.Sprintf("key %d is foreign", i))
		}
		if n := strings.Count(log.String(), "\n"); n != maxFaults-2+1 {
			t.Errorf("a thousand faults in a minute left %d lines, want %d", n, maxFaults-2+1)
		}
		time.Sleep(faultPause)
		log.Reset()
		meet("key a is foreign")
		if got := log.String(); !strings.Contains(got, "unlogged=1") {
			t.Errorf("a minute later the log is\n%s\nwant unlogged=1", got)
		}
	})
}

type failingTicket struct{ *oneTicket }

func (s failingTicket) End(simba.EndReason) (simba.Outcome, error) {
	return simba.Outcome{}, errNoTable
}

func TestABlockedClientGetsTheErrorOfARefusingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticket := newOneTicket()
		acquire := ticket.acquire
		ticket.acquire = func(r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
			out, _, err := acquire(r)
			return out, failingTicket{ticket}, err
		}
		s := newSite(t, Config{Backend: ticket})
		p := s.dial()
		p.send("SIMBA.ACQUIRE m c 1000 WAIT 0")
		synctest.Wait()
		ticket.grant().Wake()
		if got := p.reply(); got != failed(misconfigured) {
			t.Errorf("SIMBA.ACQUIRE replied %q, want the error of the store", got)
		}
		p.expect("PING", "+PONG\r\n")
	})
}

func TestASessionReleasesALeaseThatARefusalMayHaveBegun(t *testing.T) {
	backend := refusingStore()
	released := make(chan simba.ReleaseRequest, 1)
	backend.release = func(r simba.ReleaseRequest) (bool, simba.Seq, error) {
		released <- r
		return true, 0, nil
	}
	p := newSite(t, Config{Backend: backend}).dial()
	p.expect("SIMBA.ACQUIRE m c 1000 SESSION", failed(misconfigured))
	p.nc.Close()
	select {
	case r := <-released:
		if r.Mutex != "m" || r.Contender != "c" || r.Session == 0 {
			t.Errorf("the server released %+v, want m of c with its session", r)
		}
	case <-time.After(need.Hang):
		t.Error("the server released nothing within 10 s")
	}
}
