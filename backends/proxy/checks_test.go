package proxy

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
)

// checkedStore is a store whose result a test sets.
type checkedStore struct {
	mu     sync.Mutex // guards the fields below
	faults []Fault
	err    error
	checks int
}

func (s *checkedStore) check(context.Context) ([]Fault, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks++
	return s.faults, s.err
}

func (s *checkedStore) set(err error, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.err = faults, err
}

func (s *checkedStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.checks
}

// runChecks runs f in fake time beside the Checks of a store that is well at the start.
func runChecks(t *testing.T, f func(s *checkedStore, c *Checks, log *conformance.Log)) {
	synctest.Test(t, func(t *testing.T) {
		s, log := new(checkedStore), new(conformance.Log)
		c := NewChecks("redis", slog.New(slog.NewTextHandler(log, nil)), s.check)
		if err := c.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		go c.Run(t.Context(), NewWaiters(nil))
		synctest.Wait()
		f(s, c, log)
	})
}

func elapse(d time.Duration) {
	time.Sleep(d) // fake time
	synctest.Wait()
}

func TestStoreIsCheckedEachMinuteAndAfterAgain(t *testing.T) {
	runChecks(t, func(s *checkedStore, c *Checks, _ *conformance.Log) {
		elapse(time.Minute - 1)
		if s.count() != 1 {
			t.Errorf("%d checks before the minute is over, want 1", s.count())
		}
		elapse(1)
		if s.count() != 2 {
			t.Errorf("%d checks after a minute, want 2", s.count())
		}
		for range 100 { // many connections at once
			c.Again()
		}
		elapse(checkPause)
		if s.count() != 3 {
			t.Errorf("%d checks after 100 new connections, want 3", s.count())
		}
		elapse(30 * time.Second)
		c.Again()
		synctest.Wait()
		if s.count() != 4 {
			t.Errorf("%d checks after another connection, want 4 at once", s.count())
		}
	})
}

func TestFailingChecksAreLoggedOnceAndSoIsTheirEnd(t *testing.T) {
	runChecks(t, func(s *checkedStore, _ *Checks, log *conformance.Log) {
		s.set(errors.New("no answer"))
		elapse(2*time.Minute - 1)
		if log.String() != "" {
			t.Errorf("the log of checks that have failed for less than a minute is not empty:\n%s", log)
		}
		elapse(time.Hour)
		const warning, end = `level=WARN msg="cannot check the settings`, `level=INFO msg="the settings of the store can be checked again"`
		if log.Count(warning) != 1 || log.Count("level") != 1 {
			t.Errorf("the log of checks that fail has no single WARN:\n%s", log)
		}
		s.set(nil)
		elapse(time.Hour)
		if log.Count(end) != 1 || log.Count("level") != 2 {
			t.Errorf("the log of checks that succeed again has no single INFO:\n%s", log)
		}
		s.set(errors.New("no answer"))
		elapse(3 * time.Minute)
		if log.Count(warning) != 2 || log.Count("level") != 3 {
			t.Errorf("the log of checks that fail again has no second WARN:\n%s", log)
		}
	})
}

func TestIncompleteCheckThatFindsNoRefusedSettingEndsTheRefusal(t *testing.T) {
	runChecks(t, func(s *checkedStore, c *Checks, _ *conformance.Log) {
		s.set(nil, Fault{Setting: "maxmemory-policy", Text: "evicts", Refused: true})
		elapse(time.Minute)
		repaired := 0
		c.Repaired = func() { repaired++ }
		s.set(Incomplete{errors.New("another node is away")})
		elapse(checkPause)
		if c.Refusal() != nil || repaired != 1 {
			t.Errorf("after the repair: %v, and %d calls of Repaired; want no refusal and 1", c.Refusal(), repaired)
		}
		before := s.count()
		elapse(2 * checkPause)
		if n := s.count() - before; n != 2 {
			t.Errorf("%d checks in the 2 s after an incomplete one, want 2", n)
		}
	})
}

func TestRefusedStoreLetsNoTenureBeginUntilItIsRepaired(t *testing.T) {
	runChecks(t, func(s *checkedStore, c *Checks, log *conformance.Log) {
		weak := Fault{Setting: "appendfsync", Text: "everysec"}
		s.set(nil, weak, Fault{Setting: "maxmemory-policy", Text: "evicts", Refused: true})
		elapse(time.Minute)
		refusal := (*simba.MisconfiguredError)(nil)
		if err := c.Refusal(); !errors.As(err, &refusal) || err.Error() != "engine redis misconfigured: evicts" {
			t.Errorf("refusal %v, want the fault", err)
		}
		elapse(10 * checkPause)
		if n := log.Count("level=ERROR"); n != 2 || s.count() != 12 {
			t.Errorf("%d errors in the log after %d checks, want 2 after 12:\n%s", n, s.count(), log)
		}
		s.set(errors.New("no answer")) // a check that fails changes nothing
		elapse(time.Minute)
		if c.Refusal() == nil || len(c.Faults()) != 2 {
			t.Errorf("a check without an answer changed the result to %v, %v", c.Refusal(), c.Faults())
		}
		s.set(nil, weak)
		elapse(checkPause)
		if c.Refusal() != nil || len(c.Faults()) != 1 || log.Count("no longer at fault") != 1 {
			t.Errorf("after the repair: %v, %v:\n%s", c.Refusal(), c.Faults(), log)
		}
		before := s.count()
		elapse(time.Minute - 1)
		if s.count() != before {
			t.Errorf("%d checks in the minute after the repair, want none", s.count()-before)
		}
	})
}
