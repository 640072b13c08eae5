package simulation

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lulls orders what happens at one instant, so that no result depends on which goroutine is faster.
// A lull is a moment at which no goroutine can go on before time passes. First all that yield go on
// at a lull. The one that rests goes on when no goroutine yields any more.
type lulls struct {
	asked chan struct{} // a goroutine waits for a lull
	over  chan struct{} // closed by stop
	ended chan struct{} // closed when watch has returned

	mu      sync.Mutex // protects the fields below
	yielded []chan struct{}
	resting chan struct{}
}

func newLulls() *lulls {
	return &lulls{asked: make(chan struct{}, 1), over: make(chan struct{}), ended: make(chan struct{})}
}

// watch waits for lulls until stop. It alone may do so in a bubble.
func (l *lulls) watch() {
	defer close(l.ended)
	for {
		select {
		case <-l.asked:
			for synctest.Wait(); l.goOn(); synctest.Wait() {
			}
		case <-l.over:
			return
		}
	}
}

// stop ends all lulls. A goroutine that yields later, such as a timer of the last instant, goes on
// at once. It waits for watch: if the first goroutine of a bubble has exited while a timer is due,
// no Wait returns.
func (l *lulls) stop() {
	close(l.over)
	<-l.ended
}

// goOn lets goroutines go on that waited for this lull. It reports whether there were any.
func (l *lulls) goOn() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.yielded
	if l.yielded = nil; len(list) == 0 && l.resting != nil {
		list, l.resting = append(list, l.resting), nil
	}
	for _, waits := range list {
		close(waits)
	}
	return len(list) > 0
}

// yield returns at the next lull, when dead is closed, or after stop.
func (l *lulls) yield(dead <-chan struct{}) {
	waits := make(chan struct{})
	l.mu.Lock()
	l.yielded = append(l.yielded, waits)
	l.ask()
	l.mu.Unlock()
	select {
	case <-waits:
	case <-dead:
	case <-l.over:
	}
}

// rest returns at the next lull in which no goroutine yields. One goroutine may rest at a time.
func (l *lulls) rest() {
	waits := make(chan struct{})
	l.mu.Lock()
	l.resting = waits
	l.ask()
	l.mu.Unlock()
	<-waits
}

func (l *lulls) ask() {
	select {
	case l.asked <- struct{}{}:
	default:
	}
}

func TestRestReturnsAfterTheLastYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLulls()
		go l.watch()
		defer l.stop()
		var yields atomic.Int32
		for range 2 {
			go func() {
				for range 3 {
					l.yield(nil)
					yields.Add(1)
				}
			}()
		}
		l.rest()
		if n := yields.Load(); n != 6 {
			t.Errorf("rest returned after %d of 6 yields", n)
		}
	})
}

// A run ends where a rule is broken, and a timer may fire at that instant.
func TestYieldReturnsAfterStop(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := newLulls()
		go l.watch()
		l.stop()
		l.yield(nil)
	})
}

func TestARunMayEndWhileATimerIsDue(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := newLulls()
		go l.watch()
		defer l.stop()
		timer := time.AfterFunc(time.Hour, func() {})
		l.yield(nil)
		timer.Reset(0)
	})
}
