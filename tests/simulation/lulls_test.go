package simulation

import (
	"sync"
	"testing/synctest"
)

// lulls puts in order what happens at one instant, that nothing is decided by who is faster. Whoever yields or rests goes on when
// nobody else can before time passes: first all who yield, and who rests when nobody yields any more.
type lulls struct {
	asked chan struct{} // somebody waits

	mu      sync.Mutex // protects what follows
	yielded []chan struct{}
	resting chan struct{}
}

func newLulls() *lulls { return &lulls{asked: make(chan struct{}, 1)} }

// watch waits for lulls until stop. It alone may do so in a bubble.
func (l *lulls) watch() {
	for range l.asked {
		for synctest.Wait(); l.goOn(); synctest.Wait() {
		}
	}
}

func (l *lulls) stop() { close(l.asked) }

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

// yield returns at the next lull, or when dead is closed.
func (l *lulls) yield(dead <-chan struct{}) {
	waits := make(chan struct{})
	l.mu.Lock()
	l.yielded = append(l.yielded, waits)
	l.ask()
	l.mu.Unlock()
	select {
	case <-waits:
	case <-dead:
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
