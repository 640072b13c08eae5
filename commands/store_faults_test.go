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
)

const misconfigured = "ERR engine mysql misconfigured: table simba_mutex does not exist"

var errNoTable = &simba.MisconfiguredError{Engine: "mysql", Err: errors.New("table simba_mutex does not exist")}

func TestARefusingStoreIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		p := newSite(t, Config{Backend: failingStore(0, errNoTable), Logger: slog.New(slog.NewTextHandler(&log, nil))}).dial()
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
		if n := strings.Count(log.String(), "\n"); n != maxFaults-2 {
			t.Errorf("a thousand faults in a minute left %d lines, want %d", n, maxFaults-2)
		}
		time.Sleep(faultPause)
		log.Reset()
		meet("key a is foreign")
		if got := log.String(); !strings.Contains(got, "unlogged=986") {
			t.Errorf("a minute later the log is\n%s\nwant unlogged=986", got)
		}
	})
}

func TestABlockedClientGetsTheErrorOfARefusingStore(t *testing.T) {
	withTicket(t, func(t *testing.T, s *site, ticket *oneTicket) {
		ticket.err = errNoTable
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
