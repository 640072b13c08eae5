package commands

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

const (
	queued  = "+QUEUED\r\n"
	nullTwo = "*-1\r\n" // the reply of EXEC in RESP2 if a watched key has changed
)

func (p *peer) transaction(commands ...string) string {
	p.t.Helper()
	p.expect("MULTI", ok)
	for _, c := range commands {
		p.expect(c, queued)
	}
	return p.do("EXEC")
}

func (p *peer) expectTransaction(reply string, commands ...string) {
	p.t.Helper()
	if got := p.transaction(commands...); got != reply {
		p.t.Errorf("%s:\n got %q\nwant %q", strings.Join(commands, "; "), got, reply)
	}
}

func TestAChangedWatchedKeyPreventsExec(t *testing.T) {
	for name, change := range map[string]string{
		"set":            "SET a other",
		"same value":     "SET a w1", // a new lease is a change too
		"deleted":        "DEL a",
		"expire":         "PEXPIRE a 1000",
		"other spelling": "SET simba:{a} other", // the other spelling of the key a
		"broken":         "SIMBA.BREAK a",
	} {
		t.Run(name, func(t *testing.T) {
			s := newEngineSite(t)
			p, q := s.dial(), s.dial()
			q.expect("SET a w1", ok)
			p.expect("WATCH x a", ok)
			q.do(change)
			p.expectTransaction(nullTwo, "SET done 1")
			p.expect("EXISTS done", ":0\r\n")
			p.expectTransaction("*1\r\n"+ok, "SET done 1") // the previous EXEC has ended the watch
		})
	}
}

func TestWatchCoversOtherCommandsToo(t *testing.T) {
	s := newEngineSite(t)
	p, q := s.dial(), s.dial()
	p.expect("WATCH a", ok)
	p.expectTransaction("*1\r\n:0\r\n", "SIMBA.RELEASE a w1")
	p.expect("WATCH a", ok)
	q.expect("SET a w1", ok)
	p.expectTransaction(nullTwo, "SIMBA.RELEASE a w1")
	p.expect("GET a", bulk("w1"))
}

func TestWatchEndsWithoutExecToo(t *testing.T) {
	for name, end := range map[string][]string{
		"unwatch":         {"UNWATCH"},
		"discard":         {"MULTI", "DISCARD"},
		"aborted":         {"MULTI", "nonsense", "EXEC"},
		"reset":           {"RESET"},
		"exec, bad arity": {"EXEC x"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newEngineSite(t)
			p, q := s.dial(), s.dial()
			p.expect("WATCH a", ok)
			q.expect("SET a w1", ok)
			for _, command := range end {
				p.do(command)
			}
			p.expectTransaction("*1\r\n"+bulk("w1"), "GET a")
		})
	}
}

func TestWatchIsRefusedInMultiAndBeyondItsLimit(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("MULTI", ok)
	p.expect("WATCH a", failed("ERR WATCH inside MULTI is not allowed"))
	p.expect("GET a", queued)
	p.expect("UNWATCH", queued)
	p.expect("EXEC", "*2\r\n$-1\r\n"+ok)

	keys := "WATCH"
	for i := range maxWatched {
		keys += fmt.Sprint(" ", i)
	}
	p.expect(keys, ok)
	p.expect(keys, ok) // keys that are watched already do not count again
	p.expect("WATCH a", failed("ERR too many watched keys: a connection may watch at most 1000"))
	p.expect("UNWATCH", ok)
	p.expect("WATCH a", ok)
}

type counting struct {
	*engine.Engine
	reads atomic.Int64
}

type countingTx struct {
	simba.Tx
	space *counting
}

func (s *counting) Update(do func(simba.Tx) error) (simba.Seq, error) {
	return s.Engine.Update(func(tx simba.Tx) error { return do(countingTx{tx, s}) })
}

func (t countingTx) Lock(mutex string) simba.Lock {
	t.space.reads.Add(1)
	return t.Tx.Lock(mutex)
}

func TestATooLargeTransactionStopsEarly(t *testing.T) {
	space := &counting{Engine: newConflicting(t).Engine}
	p := newSite(t, Config{Backend: space}).dial()
	const most = simba.MaxTxKeys + 1000
	mgets := make([]string, 0, 100)
	for n := 0; len(mgets) < cap(mgets); {
		command := new(strings.Builder)
		command.WriteString("MGET")
		for range 500 {
			fmt.Fprintf(command, " k%d", n)
			n++
		}
		mgets = append(mgets, command.String())
	}
	for _, c := range []struct {
		name  string
		reply string
	}{
		{"EXEC", p.transaction(mgets...)},
		{"a script", p.do(`EVAL "for i=1,100000 do redis.call('GET','k'..i) end" 0`)},
		{"a script that ignores the error", p.do(`EVAL "for i=1,100000 do redis.pcall('GET','k'..i) end" 0`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.reply != failed("ERR "+simba.ErrTooLarge.Error()) {
				t.Errorf("the reply is %.100q, want %q", c.reply, simba.ErrTooLarge)
			}
		})
	}
	if n := space.reads.Load(); n > 3*most {
		t.Errorf("%d locks were read, want at most %d", n, 3*most)
	}
}

func TestTheReplyOfAKeyTransactionIsBounded(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("SET a "+strings.Repeat("x", 60<<10), ok)
	get := make([]string, maxExecReply/(60<<10)+10)
	for i := range get {
		get[i] = "GET a"
	}
	reply := p.transaction(get...)
	if n := strings.Count(reply, failed(string(errExecReply))); n == 0 || n > 10 {
		t.Errorf("%d of %d commands were refused, want 1 to 10", n, len(get))
	}
}

// conflicting is a keyspace in which runs of transactions conflict, until times is 0.
type conflicting struct {
	*engine.Engine
	times int // how many of the next runs conflict
}

// Update makes a run conflict and decreases times, unless times is 0. It lets the transaction read
// another key, and changes this key at the end of the run.
func (s *conflicting) Update(do func(simba.Tx) error) (simba.Seq, error) {
	return s.Engine.Update(func(tx simba.Tx) error {
		if s.times == 0 {
			return do(tx)
		}
		tx.Unchanged("conflicting", false, 0) // the transaction reads the version of the key
		err := do(tx)
		s.times--
		_, _ = s.Engine.Update(func(other simba.Tx) error {
			other.Take("conflicting", simba.Lock{Owner: "other", TTL: simba.Endless})
			return nil
		})
		_, _ = s.Engine.Update(func(other simba.Tx) error {
			other.Drop("conflicting")
			return nil
		})
		return err
	})
}

func newConflicting(t *testing.T) *conflicting { return &conflicting{Engine: newEngine(t)} }

func newConflictingSite(t *testing.T) (*site, *conflicting) {
	space := newConflicting(t)
	return newSite(t, Config{Backend: space}), space
}

func TestAConflictingTransactionRunsAgainAndCountsOnce(t *testing.T) {
	s, space := newConflictingSite(t)
	p, monitor := s.dial(), s.dial()
	monitor.expect("MONITOR", ok)
	space.times = 7
	p.expectTransaction("*3\r\n:1\r\n"+failed(string(errNotInteger))+":2\r\n", "INCR a", "INCRBY a x", "INCR a")
	p.expect("ECHO end", bulk("end")) // no reply of an earlier run is left
	for _, command := range []string{"MULTI", "INCR", "INCRBY", "INCR", "EXEC"} {
		if line := monitor.reply(); !strings.Contains(line, `"`+command+`"`) {
			t.Errorf("MONITOR shows %q, want %s", line, command)
		}
	}
	for name, want := range map[string]uint64{"incr": 2, "incrby": 1, "exec": 1} {
		if e := s.x.table.named([]byte(name)); e.tally.calls() != want {
			t.Errorf("%s was called %d times, want %d", name, e.tally.calls(), want)
		}
	}
	if n := s.x.observers.stats.errors.sum(); n != 1 {
		t.Errorf("%d errors were counted, want 1", n)
	}
}

func TestATransactionFailsAfterTooManyConflicts(t *testing.T) {
	s, space := newConflictingSite(t)
	p := s.dial()
	space.times = 200 // an engine runs a transaction at most 100 times
	p.expect("MSETNX a w1", failed(string(errContended)))
	p.expectTransaction(failed(string(errContended)), "SET a w1")
	p.expect("GET a", "$-1\r\n")
}

func TestAConflictOnAnotherKeyRunsExecAgain(t *testing.T) {
	s, space := newConflictingSite(t)
	p := s.dial()
	p.expect("WATCH a", ok)
	space.times = 1
	p.expectTransaction("*1\r\n"+ok, "SET a w1")
	p.expect("GET a", bulk("w1"))
}

// watchedChanges changes the key a at the end of the first run of a transaction.
type watchedChanges struct {
	*engine.Engine
	runs int
}

func (s *watchedChanges) Update(do func(simba.Tx) error) (simba.Seq, error) {
	return s.Engine.Update(func(tx simba.Tx) error {
		err := do(tx)
		if s.runs++; s.runs == 1 {
			_, _ = s.Engine.Update(func(other simba.Tx) error {
				other.Take("a", simba.Lock{Owner: "other", TTL: simba.Endless})
				return nil
			})
		}
		return err
	})
}

func TestAWatchedKeyThatChangesDuringExecPreventsIt(t *testing.T) {
	space := &watchedChanges{Engine: newConflicting(t).Engine}
	p := newSite(t, Config{Backend: space}).dial()
	p.expect("WATCH a", ok)
	p.expectTransaction(nullTwo, "SET b w1")
	p.expect("GET b", "$-1\r\n")
	p.expect("GET a", bulk("other"))
}
