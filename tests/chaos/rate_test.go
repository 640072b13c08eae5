package chaos

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

const (
	enough    = 100 // replies a second that a window needs
	contended = 30  // replies to writes among these that a window needs, since reads do not contend
)

type rate struct {
	operations int
	writes     int // replies to writes
	tenures    int // replies that are grants
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

// counter counts the replies at one mutex. It is safe for concurrent use.
type counter struct {
	operations, writes, tenures atomic.Int64
	anew                        atomic.Bool // a request that was sent after the fault got a grant
}

// note counts an operation with a reply. healed = 0 means that the fault lasts.
func (c *counter) note(o operation, healed instant) {
	c.operations.Add(1)
	if o.kind.writes() {
		c.writes.Add(1)
	}
	if o.status == "acquired" {
		c.tenures.Add(1)
		// the server may have granted an earlier request before the fault
		if healed != 0 && o.call > healed {
			c.anew.Store(true)
		}
	}
}

type counters []counter

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

func (c counters) since(m mark) rate {
	n := c.mark()
	return rate{
		operations: int(n.operations - m.operations), writes: int(n.writes - m.writes), tenures: int(n.tenures - m.tenures),
		took: time.Duration(n.at - m.at),
	}
}

// anew returns how many mutexes a request after the fault acquired.
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
	// This request was sent before the fault was healed.
	c[1].note(in(10, 40, acquires("a"), granted("a", 1)), healed)
	reads := c.since(from)
	if reads.took = 2 * time.Second; reads.suffices() {
		t.Errorf("suffices returns true for too few writes: %v", reads)
	}
	if n := c.anew(); n != 0 {
		t.Errorf("anew returns %d mutexes, want 0", n)
	}
	for range 40 {
		c[2].note(in(30, 40, acquires("a"), granted("a", 1)), healed)
	}
	all := c.since(from)
	if all.took = 2 * time.Second; !all.suffices() || c.anew() != 1 || all.tenures != 41 {
		t.Errorf("got %v with %d mutexes granted anew; want enough replies, 41 grants, and 1 mutex", all, c.anew())
	}
}
