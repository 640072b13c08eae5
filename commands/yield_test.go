package commands

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

// slowKeyspace is an engine in which a read of a lock, a Scan and a Break each take a millisecond.
// This is long enough that the command yields.
type slowKeyspace struct {
	*conflicting
	afterRead func() // called after each read, Scan and Break; nil = none
}

type slowTx struct {
	simba.Tx
	space *slowKeyspace
}

func (l *slowKeyspace) work() {
	time.Sleep(time.Millisecond)
	if l.afterRead != nil {
		l.afterRead()
	}
}

func (l *slowKeyspace) Update(do func(simba.Tx) error) (simba.Seq, error) {
	return l.conflicting.Update(func(tx simba.Tx) error { return do(slowTx{tx, l}) })
}

func (t slowTx) Lock(mutex string) simba.Lock {
	t.space.work()
	return t.Tx.Lock(mutex)
}

// Scan has three pages, of one mutex each.
func (l *slowKeyspace) Scan(_ context.Context, r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
	l.work()
	return simba.ScanPage{Cursor: (r.Cursor + 1) % 3, Mutexes: []string{"m"}}, 0, nil
}

func (l *slowKeyspace) Break(context.Context, string, string) (bool, simba.Seq, error) {
	l.work()
	return true, 0, nil
}

// newSlowSite returns a client's state, which a test may read between replies, and a function that
// runs commands for that client.
func newSlowSite(t *testing.T) (c *client, space *slowKeyspace, run func(commands []string)) {
	space = &slowKeyspace{conflicting: newConflicting(t)}
	s := newSite(t, Config{Backend: space})
	p := s.dial()
	p.expect("PING", "+PONG\r\n") // now the client has a state
	return s.server.Conn(1).State().(*client), space, func(commands []string) {
		t.Helper()
		for _, command := range commands {
			if reply := p.do(command); reply[0] == '-' {
				t.Errorf("%.40s replied %q, want no error", command, reply)
			}
		}
	}
}

// longCommands run long enough to yield.
var longCommands = map[string]struct {
	commands []string
	keyed    bool // the last command runs in one transaction
}{
	"many keys":             {[]string{"MGET" + strings.Repeat(" a", 2*64)}, true},
	"many keys to change":   {[]string{"DEL" + strings.Repeat(" a", 2*64)}, true},
	"KEYS":                  {[]string{"KEYS *"}, true},
	"SCAN":                  {[]string{"SCAN 0 COUNT 10000"}, false},
	"SIMBA.SCAN":            {[]string{"SIMBA.SCAN 0 COUNT 10000"}, false},
	"FLUSHALL":              {[]string{"FLUSHALL"}, false},
	"a script":              {[]string{`EVAL "for i = 1, 1000 do end redis.call('GET', 'a') for i = 1, 1000 do end" 0`}, true},
	"EXEC in a transaction": {[]string{"MULTI", "GET a", "GET a", "GET a", "EXEC"}, true},
	"EXEC one by one":       {[]string{"MULTI", "SIMBA.SCAN 0 COUNT 1", "SIMBA.SCAN 0 COUNT 1", "SIMBA.SCAN 0 COUNT 1", "EXEC"}, false},
}

func TestALongCommandYields(t *testing.T) {
	for name, long := range longCommands {
		t.Run(name, func(t *testing.T) {
			c, _, run := newSlowSite(t)
			run(long.commands)
			if c.call.parked == 0 {
				t.Error("the command did not yield")
			}
		})
	}
}

func TestAConflictingTransactionYieldsBeforeItRunsAgain(t *testing.T) {
	c, space, run := newSlowSite(t)
	space.times = 2
	run([]string{"MSETNX a w1"})
	if c.call.parked == 0 {
		t.Error("the conflicting command did not yield")
	}
}

func TestATransactionThatRunsAgainDoesNotYield(t *testing.T) {
	for name, long := range longCommands {
		if !long.keyed {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c, space, run := newSlowSite(t)
			space.times = 1
			parked := time.Duration(-1) // c.call.parked when the second run began
			space.afterRead = func() {
				if space.times == 0 && parked < 0 {
					parked = c.call.parked
				}
			}
			run(long.commands)
			if c.call.parked != parked {
				t.Errorf("the command yielded for %v in all, but for %v before its second run, want the same time", c.call.parked, parked)
			}
		})
	}
}
