package resp

import (
	"bytes"
	"errors"
	"os"
	"sync"
	"time"
)

// Push queues frames in the encoding of Proto. It returns false if the connection has ended, or if
// this push overflowed the queue and ended it. The caller must not change the bytes any more. Any
// goroutine may call it. It never waits for the client.
func (c *Conn) Push(frames []byte) bool {
	p := c.enqueue(&publication{encoded: [2][]byte{frames, frames}}, nil)
	if p == pushOverflew {
		c.cutSlow()
	}
	return p == pushQueued
}

// HoldPushes holds later pushes back until the next Flush, so that the reply to this command
// precedes them. Subscribe calls it by itself.
func (c *Conn) HoldPushes() { c.hold() }

// SetAwaitsPushes sets whether the client waits for pushes other than messages. The idle timeout does
// not apply to such a client.
func (c *Conn) SetAwaitsPushes(on bool) { c.listening = on }

// manyPushes is how many messages, counted by receivers, a connection may publish before it waits
// for the pushers.
const manyPushes = 20_000

// publishWait is how long it waits at most, because subscribers may read nothing.
const publishWait = 100 * time.Millisecond

// CountReceivers counts the receivers of a publish. After manyPushes of them the connection waits,
// before its next command, until the pushers have sent most of the queued messages.
func (c *Conn) CountReceivers(receivers int) { c.published += receivers }

// awaitPushes waits for the pushers if the connection has published much. It is called between
// commands.
func (c *Conn) awaitPushes() {
	if c.published < manyPushes {
		return
	}
	c.published = 0
	if c.Flush() != nil { // clients that depend on earlier commands must not wait too
		return
	}
	c.Detach()
	c.server.pushers.await()
}

// hold marks the current command in the push queue. A command that changes several subscriptions
// takes effect at its beginning, as a whole.
func (c *Conn) hold() {
	if !c.holds {
		c.holds = true
		c.push.hold(c.command)
	}
}

// OutputQueued returns the size of the push queue in bytes. Any goroutine may call it.
func (c *Conn) OutputQueued() int {
	c.push.mu.Lock()
	defer c.push.mu.Unlock()
	return c.push.bytes
}

// enqueue adds a push from topic t and starts a pusher if none runs. After pushOverflew the caller
// must call cutSlow without a lock.
func (c *Conn) enqueue(p *publication, t *topic) pushed {
	q := &c.push
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.slow || c.closed.Load() {
		return pushRefused
	}
	frame := p.frame(q.resp3)
	cost := len(frame) + pushCost
	if q.bytes+cost > c.server.limits.PushQueue {
		q.slow = true
		return pushOverflew
	}
	q.bytes += cost
	q.queue = append(q.queue, push{frame, t})
	if q.start() {
		c.startPusher()
	}
	return pushQueued
}

// startPusher starts a pusher. Any goroutine may call it, with any lock.
func (c *Conn) startPusher() {
	if c.sock == nil || !c.server.pushers.push(c) {
		go c.pushAll()
	}
}

// scratches are buffers in which pushers join frames.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// pushAll is a pusher with a goroutine of its own. It may wait for its client, and ends when the
// queue is empty.
func (c *Conn) pushAll() {
	c.wmu.Lock()
	c.pushRest(nil)
}

// pushRest sends the rest of a write and then all of the queue. The caller has locked c.wmu.
func (c *Conn) pushRest(left []byte) {
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

// pushSome is a pusher that never blocks. It sends a part of the queue and reports whether there is
// more. If the client or another writer is slow, it leaves the rest to a goroutine.
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
		go c.pushRest(bytes.Clone(frames[n:]))
		return false
	}
	c.wmu.Unlock()
	return c.pushed(err) && c.push.hasMore()
}

// pushed handles the result of a write, and reports whether the pusher may go on.
func (c *Conn) pushed(err error) bool {
	if err == nil {
		c.touch()
		return true
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && c.push.markSlow() {
		c.cutSlow()
	}
	c.Close()
	c.push.stop()
	return false
}

// cutSlow closes a connection whose client does not read its pushes. Its goroutine logs that.
func (c *Conn) cutSlow() {
	c.server.slowCut.Add(1)
	c.Close()
}

// release ends a hold.
func (c *Conn) release() {
	c.push.mu.Lock()
	defer c.push.mu.Unlock()
	c.push.held = false
	if c.push.start() {
		c.startPusher()
	}
}

// drainPushes refuses further pushes and waits until the pusher has sent the queue or failed.
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
