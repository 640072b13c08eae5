package simulation

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lulls puts in order what happens at one instant, that nothing is decided by who is faster. Whoever yields or rests goes on when
// nobody else can before time passes: first all who yield, and who rests when nobody yields any more.
type lulls struct {
	asked chan struct{} // somebody waits
	over  chan struct{} // closed by stop
	ended chan struct{} // closed when watch has returned

	mu      sync.Mutex // protects what follows
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

// stop is the end of all lulls: who yields from then on, as a timer that fired at the last instant, goes on at once. It waits for
// watch: a bubble whose first goroutine has exited, while a timer is due, lets no Wait return.
func (l *lulls) stop() {
	close(l.over)
	<-l.ended
}

// goOn reports whether there was anybody who waited for this lull.
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

// rest returns at the next lull in which nobody yields. One goroutine may do so at a time.
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
			t.Errorf("who rests went on after %d of 6 yields", n)
		}
	})
}

// A run ends where a rule is broken, and a timer may have fired at that instant.
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
