package chaos

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

const (
	enough    = 100 // operations a second that a window must have
	contended = 30  // of them, at least, requests to change something: who only looks contends for nothing
)

// rate is how much was answered in a time.
type rate struct {
	operations int
	writes     int // of these, those that may change something
	tenures    int // of those, the ones by which a tenure began
	took       time.Duration
}

func (r *rate) add(o rate) {
	r.operations += o.operations
	r.writes += o.writes
	r.tenures += o.tenures
	r.took += o.took
}

func (r rate) aSecond() float64 { return float64(r.operations) / r.took.Seconds() }

func (r rate) writesASecond() float64 { return float64(r.writes) / r.took.Seconds() }

func (r rate) suffices() bool { return r.aSecond() >= enough && r.writesASecond() >= contended }

func (r rate) String() string {
	return fmt.Sprintf("%d operations, %d of them writes, and %d new tenures in %v", r.operations, r.writes, r.tenures, r.took)
}

// counter counts what was answered at one mutex. It is safe for concurrent use.
type counter struct {
	operations, writes, tenures atomic.Int64
	anew                        atomic.Bool // a tenure was asked for when the fault was healed, and granted
}

// note counts an operation that has a reply; healed is when the fault was, 0 = not yet.
func (c *counter) note(o operation, healed instant) {
	c.operations.Add(1)
	if o.kind.writes() {
		c.writes.Add(1)
	}
	if o.status == "acquired" {
		c.tenures.Add(1)
		if healed != 0 && o.call > healed { // else the network may have kept back what was granted before
			c.anew.Store(true)
		}
	}
}

// counters are those of all mutexes of a window.
type counters []counter

// mark is what they had come to at an instant.
type mark struct {
	at                          instant
	operations, writes, tenures int64
}

func (c counters) mark() mark {
	m := mark{at: now()}
	for i := range c {
		m.operations += c[i].operations.Load()
		m.writes += c[i].writes.Load()
		m.tenures += c[i].tenures.Load()
	}
	return m
}

// since is what was counted since then.
func (c counters) since(m mark) rate {
	n := c.mark()
	return rate{
		operations: int(n.operations - m.operations), writes: int(n.writes - m.writes), tenures: int(n.tenures - m.tenures),
		took: time.Duration(n.at - m.at),
	}
}

// anew is how many mutexes were granted anew since the fault was healed.
func (c counters) anew() (n int) {
	for i := range c {
		if c[i].anew.Load() {
			n++
		}
	}
	return n
}

func TestReadsAloneDoNotMakeAWindowCount(t *testing.T) {
	c := make(counters, 3)
	from := c.mark()
	const healed = instant(20 * time.Millisecond)
	for range 300 {
		c[0].note(in(0, 10, asks, free), 0)
	}
	for range 50 {
		c[0].note(in(30, 40, acquires("a"), busy("b", 1)), healed)
	}
	c[1].note(in(10, 40, acquires("a"), granted("a", 1)), healed) // on its way since before
	looks := c.since(from)
	if looks.took = 2 * time.Second; looks.suffices() {
		t.Errorf("%v: that would do", looks)
	}
	if n := c.anew(); n != 0 {
		t.Errorf("%d mutexes were granted anew, of none", n)
	}
	for range 40 {
		c[2].note(in(30, 40, acquires("a"), granted("a", 1)), healed)
	}
	all := c.since(from)
	if all.took = 2 * time.Second; !all.suffices() || c.anew() != 1 || all.tenures != 41 {
		t.Errorf("%v, %d mutexes granted anew: that would not do", all, c.anew())
	}
}
