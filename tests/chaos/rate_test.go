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
type counter struct{ operations, writes, tenures atomic.Int64 }

// note counts an operation that has a reply.
func (c *counter) note(o operation) {
	c.operations.Add(1)
	if o.kind.writes() {
		c.writes.Add(1)
	}
	if o.status == "acquired" {
		c.tenures.Add(1)
	}
}

// counters are those of all mutexes of a window.
type counters []counter

// mark is what they had come to at an instant.
type mark struct {
	at                 instant
	operations, writes int64
	tenures            []int64 // of each mutex
}

func (c counters) mark() mark {
	m := mark{at: now()}
	for i := range c {
		m.operations += c[i].operations.Load()
		m.writes += c[i].writes.Load()
		m.tenures = append(m.tenures, c[i].tenures.Load())
	}
	return m
}

// since is what was counted since then, and of how many mutexes a tenure has begun.
func (c counters) since(m mark) (r rate, anew int) {
	n := c.mark()
	r = rate{operations: int(n.operations - m.operations), writes: int(n.writes - m.writes), took: time.Duration(n.at - m.at)}
	for i := range c {
		begun := int(n.tenures[i] - m.tenures[i])
		r.tenures += begun
		if begun > 0 {
			anew++
		}
	}
	return r, anew
}

func TestLooksAloneDoNotMakeAWindowCount(t *testing.T) {
	c := make(counters, 2)
	from := c.mark()
	for range 300 {
		c[0].note(in(0, 10, asks, free))
	}
	for range 50 {
		c[0].note(in(0, 10, acquires("a"), busy("b", 1)))
	}
	looks, anew := c.since(from)
	if looks.took = 2 * time.Second; looks.suffices() {
		t.Errorf("%v: that would do", looks)
	}
	if anew != 0 {
		t.Errorf("%d mutexes were granted, of none", anew)
	}
	for range 40 {
		c[1].note(in(0, 10, acquires("a"), granted("a", 1)))
	}
	all, anew := c.since(from)
	if all.took = 2 * time.Second; !all.suffices() || anew != 1 || all.tenures != 40 {
		t.Errorf("%v, %d mutexes granted: that would not do", all, anew)
	}
}
