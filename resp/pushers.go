package resp

import (
	"runtime"
	"sync"
	"time"
)

// pushesAtOnce is to how many connections a pusher writes before it gives way.
const pushesAtOnce = 16

// pushers send what is queued for the connections of a poller, by few goroutines: each goes from
// one connection to the next. What is published meanwhile is sent with the same write. Connections
// without a poller have a goroutine each for that. The zero value has none; it takes no connection.
type pushers struct {
	mu       sync.Mutex // protects this group; a leaf
	running  bool
	conns    []*Conn       // who is to be sent what is queued for it
	caughtUp chan struct{} // closed when only a few are left; nil = nobody waits for that

	pushed chan struct{} // there are connections
	ended  sync.WaitGroup
}

// start begins n goroutines.
func (p *pushers) start(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.pushed = true, make(chan struct{}, 1)
	for range n {
		p.ended.Go(p.run)
	}
}

// stop ends the goroutines. It is called when all connections have ended.
func (p *pushers) stop() {
	p.mu.Lock()
	if p.running {
		p.running = false
		close(p.pushed)
	}
	p.mu.Unlock()
	p.ended.Wait()
}

// push has c.pushSome called, or reports that no pusher runs. Any goroutine may call it, with any lock.
func (p *pushers) push(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return false
	}
	p.conns = append(p.conns, c)
	p.signal()
	return true
}

// signal wakes a pusher that has nothing to do, if there is one. The caller holds mu, so that the channel is open.
func (p *pushers) signal() {
	select {
	case p.pushed <- struct{}{}:
	default:
	}
}

func (p *pushers) run() {
	var conns []*Conn
	var scratch []byte
	for range p.pushed {
		for {
			if conns = p.take(conns[:0]); len(conns) == 0 {
				break
			}
			for _, c := range conns {
				if c.pushSome(&scratch) && !p.push(c) {
					go c.pushAll()
				}
			}
			clear(conns)
			runtime.Gosched()
		}
	}
}

// take adds some of those who wait for a pusher to conns.
func (p *pushers) take(conns []*Conn) []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := min(len(p.conns), pushesAtOnce)
	conns = append(conns, p.conns[:n]...)
	clear(p.conns[:n])
	if p.caughtUp != nil && len(p.conns)-n <= pushesAtOnce {
		close(p.caughtUp)
		p.caughtUp = nil
	}
	if n == len(p.conns) {
		p.conns = p.conns[:0]
		return conns
	}
	p.conns = p.conns[n:]
	if p.running {
		p.signal() // another one may help
	}
	return conns
}

// await returns when the pushers have only a few connections left to send to, or after publishWait.
func (p *pushers) await() {
	p.mu.Lock()
	if len(p.conns) <= pushesAtOnce {
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
