package resp

import (
	"errors"
	"os"
	"sync"
)

// Push queues frames, in the encoding that Proto says, and reports whether it did:
// false means that the connection has ended or was cut, perhaps by this push. The
// bytes are kept and must not change any more. Any goroutine may call it; it never
// waits for the client.
func (c *Conn) Push(frames []byte) bool {
	p := c.enqueue(&publication{encoded: [2][]byte{frames, frames}}, nil)
	if p == pushOverflew {
		c.cutSlow()
	}
	return p == pushQueued
}

// HoldPushes holds back what is pushed from now on until the next Flush, so that
// the reply to this command comes before it; Subscribe does so by itself.
func (c *Conn) HoldPushes() { c.hold() }

// SetListening sets whether the client waits for pushes besides those of its
// subscriptions: then the idle timeout does not apply to it.
func (c *Conn) SetListening(on bool) { c.listening = on }

// hold puts the mark at the command being executed. One that changes several
// subscriptions takes effect at its beginning, as a whole.
func (c *Conn) hold() {
	if !c.holds {
		c.holds = true
		c.push.hold(c.command)
	}
}

// OutputQueued is how many bytes of pushes wait for the client. Any goroutine may
// call it.
func (c *Conn) OutputQueued() int {
	c.push.mu.Lock()
	defer c.push.mu.Unlock()
	return c.push.bytes
}

// enqueue adds a push from topic t and starts a pusher for it if there is none.
// Who gets pushOverflew has to call cutSlow, once it holds no locks.
func (c *Conn) enqueue(p *publication, t *topic) pushed {
	q := &c.push
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.cut || c.closed.Load() {
		return pushRefused
	}
	frame := p.frame(q.resp3)
	cost := len(frame) + pushCost
	if q.bytes+cost > c.server.limits.PushQueue {
		q.cut = true
		return pushOverflew
	}
	q.bytes += cost
	q.queue = append(q.queue, push{frame, t})
	if q.start() {
		go c.pushAll()
	}
	return pushQueued
}

// scratches are where pushers put several frames together.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// pushAll is the pusher: it sends what is queued, and ends.
func (c *Conn) pushAll() {
	scratch := scratches.Get().(*[]byte)
	defer scratches.Put(scratch)
	for {
		c.wmu.Lock()
		frames, ok := c.push.take(scratch)
		if !ok {
			c.wmu.Unlock()
			return
		}
		err := c.write(frames)
		c.wmu.Unlock()
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) && c.push.cutOff() {
				c.cutSlow()
			}
			c.Close()
			c.push.stop()
			return
		}
		c.touch()
	}
}

// cutSlow cuts a connection that does not take its pushes. Its goroutine logs it.
func (c *Conn) cutSlow() {
	c.server.slowCut.Add(1)
	c.Close()
}

// release lets the pusher go on after a hold.
func (c *Conn) release() {
	c.push.mu.Lock()
	defer c.push.mu.Unlock()
	c.push.held = false
	if c.push.start() {
		go c.pushAll()
	}
}

// drainPushes takes no more pushes and waits until the pusher has sent what is in
// the queue, or could not.
func (c *Conn) drainPushes() {
	q := &c.push
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for q.running {
		q.stopped.Wait()
	}
	q.queue, q.bytes = nil, 0
}
