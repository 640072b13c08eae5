package resp

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"
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

// manyPushes is what a connection may publish, in messages to one subscriber each, before it waits for the pushers.
const manyPushes = 20_000

// publishWait is how long it waits at most: pushers whose clients take nothing must not stop it.
const publishWait = 100 * time.Millisecond

// Published counts what the connection has published, by how many it was queued for. A client that publishes without
// end waits now and then, between commands, until most of what is queued for subscribers has been sent.
func (c *Conn) Published(receivers int) { c.published += receivers }

// awaitPushes has a connection that has published much wait for the pushers. It is called between commands.
func (c *Conn) awaitPushes() {
	if c.published < manyPushes {
		return
	}
	c.published = 0
	if c.Flush() != nil { // who is served by what came before must not wait too
		return
	}
	c.Detach()
	c.server.pushers.await()
}

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
		c.startPusher()
	}
	return pushQueued
}

// startPusher begins to send what is queued. Any goroutine may call it, with any lock.
func (c *Conn) startPusher() {
	if c.sock == nil || !c.server.pushers.push(c) {
		go c.pushAll()
	}
}

// scratches are where pushers put several frames together.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// pushAll is a pusher that may wait for its client: it sends what is queued, and ends.
func (c *Conn) pushAll() {
	c.wmu.Lock()
	c.pushOn(nil)
}

// pushOn sends what is left of a write, and goes on as pushAll. The caller has locked c.wmu.
func (c *Conn) pushOn(left []byte) {
	scratch := scratches.Get().(*[]byte)
	defer scratches.Put(scratch)
	for frames, ok := left, len(left) > 0; ; ok = false {
		if !ok {
			frames, ok = c.push.take(scratch)
		}
		if !ok {
			c.wmu.Unlock()
			return
		}
		err := c.write(frames)
		c.wmu.Unlock()
		if !c.pushed(err) {
			return
		}
		c.wmu.Lock()
	}
}

// pushSome is a pusher that waits for nobody: it sends some of what is queued, and reports whether there is more. Where
// the client or another writer is slow it leaves the rest to a goroutine.
func (c *Conn) pushSome(scratch *[]byte) (more bool) {
	if !c.wmu.TryLock() {
		go c.pushAll()
		return false
	}
	frames, ok := c.push.take(scratch)
	if !ok {
		c.wmu.Unlock()
		return false
	}
	n, err := c.sock.WriteNow(frames)
	c.server.bytesOut.Add(int64(n))
	if err == nil && n < len(frames) {
		go c.pushOn(bytes.Clone(frames[n:]))
		return false
	}
	c.wmu.Unlock()
	return c.pushed(err) && c.push.goesOn()
}

// pushed is called after a write of pushes, and reports whether the pusher may go on.
func (c *Conn) pushed(err error) bool {
	if err == nil {
		c.touch()
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.push.cutOff() {
		c.cutSlow()
	}
	c.Close()
	c.push.stop()
	return false
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
		c.startPusher()
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
