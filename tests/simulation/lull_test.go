package simulation

import (
	"sync"
	"testing/synctest"
)

// lulls orders the goroutines that run at one instant of fake time, so no result depends on the
// fastest goroutine. At a lull, every goroutine of the bubble is blocked. Then the goroutines
// blocked in yield continue. If there are none, the one blocked in rest continues.
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

// watch ends each lull until stop. Only watch calls synctest.Wait, which a bubble allows only one
// goroutine at a time.
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

// stop ends all lulls. A goroutine that yields later, such as a timer of the last instant,
// continues at once. stop waits until watch has returned. Otherwise the bubble's first goroutine
// could exit while a timer is due, and synctest.Wait would never return.
func (l *lulls) stop() {
	close(l.over)
	<-l.ended
}

// goOn wakes the goroutines that waited for this lull, and reports whether there were any.
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
