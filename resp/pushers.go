package resp

import (
	"runtime"
	"sync"
	"time"
)

// pushBatch is how many connections a pusher serves before it yields.
const pushBatch = 16

// pushers are the few goroutines that send the push queues of polled connections. Each goroutine
// serves one connection after the other. The zero value has no goroutine.
type pushers struct {
	mu       sync.Mutex // protects this group
	running  bool
	conns    []*Conn       // connections with queued pushes
	caughtUp chan struct{} // closed when conns is short again; nil = no publisher waits

	wake  chan struct{} // receives a value when conns is not empty
	ended sync.WaitGroup
}

func (p *pushers) start(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.wake = true, make(chan struct{}, 1)
	for range n {
		p.ended.Go(p.run)
	}
}

// stop ends the goroutines. All connections must have ended.
func (p *pushers) stop() {
	p.mu.Lock()
	if p.running {
		p.running = false
		close(p.wake)
	}
	p.mu.Unlock()
	p.ended.Wait()
}

// schedule queues c for a call of c.pushSome. It returns false if no pusher runs. The caller may
// hold other locks.
func (p *pushers) schedule(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return false
	}
	p.conns = append(p.conns, c)
	p.signal()
	return true
}

// signal wakes an idle pusher, if there is one. The caller holds mu, and running is true, so wake
// is open.
func (p *pushers) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pushers) run() {
	var conns []*Conn
	var scratch []byte
	for range p.wake {
		for {
			if conns = p.take(conns[:0]); len(conns) == 0 {
				break
			}
			for _, c := range conns {
				if c.pushSome(&scratch) && !p.schedule(c) {
					go c.pushAll()
				}
			}
			clear(conns)
			runtime.Gosched()
		}
	}
}

// take moves up to pushBatch connections from p.conns to conns.
func (p *pushers) take(conns []*Conn) []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.conns), pushBatch)
	conns = append(conns, p.conns[:n]...)
	clear(p.conns[:n])
	if p.caughtUp != nil && len(p.conns)-n <= pushBatch {
		close(p.caughtUp)
		p.caughtUp = nil
	}
	if n == len(p.conns) {
		p.conns = p.conns[:0]
		return conns
	}
	p.conns = p.conns[n:]
	if p.running {
		p.signal() // wakes another pusher for the rest
	}
	return conns
}

// await returns when at most pushBatch connections wait for a pusher, or after publishWait.
func (p *pushers) await() {
	p.mu.Lock()
	if len(p.conns) <= pushBatch {
		p.mu.Unlock()
		return
	}
	if p.caughtUp == nil {
		p.caughtUp = make(chan struct{})
	}
	caughtUp := p.caughtUp
	p.mu.Unlock()
	timer := time.NewTimer(publishWait)
	defer timer.Stop()
	select {
	case <-caughtUp:
	case <-timer.C:
	}
}
