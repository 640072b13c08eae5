package resp

import (
	"errors"
	"os"
	"sync"
	"time"
)

// Push queues frames, which must use the version of RESP that Proto returns. It returns false if
// the connection has ended. If the queue overflows, Push closes the connection and returns false.
// The caller must not change the bytes afterwards. Push never waits for the client. Any goroutine
// may call it.
func (c *Conn) Push(frames []byte) bool {
	p := c.enqueue(&publication{encoded: [2][]byte{frames, frames}}, nil)
	if p == pushOverflew {
		c.cutSlow()
	}
	return p == pushQueued
}

// HoldPushes holds later pushes back until the next Flush, so that they follow the reply to this
// command. Subscribe, Unsubscribe and SetProto hold pushes back themselves.
//
// Only the first call in a command has an effect. So all changes of subscriptions by one command
// take effect at the same point in the queue.
func (c *Conn) HoldPushes() {
	if !c.holdsPushes {
		c.holdsPushes = true
		c.push.hold(c.start)
	}
}

// manyPushes is how many messages a connection may publish before it waits for the pushers. Each
// message counts once for each receiver.
const manyPushes = 20_000

// publishWait bounds a wait for the pushers, because subscribers may read nothing.
const publishWait = 100 * time.Millisecond

// AddReceivers counts the receivers of a message that this connection has published. When the count
// reaches manyPushes, the connection waits at most publishWait for the pushers, before its next
// command.
func (c *Conn) AddReceivers(receivers int) { c.deliveries += receivers }

// waitForPushers waits for the pushers if the messages of the connection had many receivers.
func (c *Conn) waitForPushers() {
	if c.deliveries < manyPushes {
		return
	}
	c.deliveries = 0
	if c.Flush() != nil { // other clients may wait for the effects of earlier commands
		return
	}
	c.server.pushers.await()
}

// OutputQueued returns the size of the push queue in bytes. Any goroutine may call it.
func (c *Conn) OutputQueued() int {
	c.push.mu.Lock()
	defer c.push.mu.Unlock()
	return c.push.bytes
}

// enqueue adds a push and starts a pusher if none runs. If enqueue returns pushOverflew, the caller
// must release its locks and then call cutSlow.
func (c *Conn) enqueue(p *publication, t *topic) enqueueResult {
	q := &c.push
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.slow || c.closed.Load() {
		return pushRefused
	}
	frame := p.frame(q.resp3)
	cost := len(frame) + pushCost
	if q.bytes+cost > c.server.cfg.PushQueue {
		q.slow = true
		return pushOverflew
	}
	q.bytes += cost
	q.queue = append(q.queue, push{frame, t})
	if q.claimPusher() {
		go c.pushAll()
	}
	return pushQueued
}

// scratches are buffers in which pushers join frames.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// pushAll is the pusher: it sends the whole queue.
func (c *Conn) pushAll() {
	for c.pushSome() {
	}
}

// pushSome sends a part of the queue, in a slot of the pushers. It reports whether the pusher may go
// on.
func (c *Conn) pushSome() bool {
	p := &c.server.pushers
	p.enter()
	left := false
	leave := func() {
		if !left {
			left = true
			p.leave()
		}
	}
	defer leave()
	if !c.wmu.TryLock() {
		leave() // the connection's own goroutine may wait for the client
		c.wmu.Lock()
	}
	scratch := scratches.Get().(*[]byte)
	defer scratches.Put(scratch)
	frames, ok := c.push.take(scratch)
	var err error
	if ok {
		c.wire.beforeWait = leave
		err = c.write(frames)
		c.wire.beforeWait = nil
	}
	c.wmu.Unlock()
	return ok && c.afterWrite(err)
}

// afterWrite handles the result of a pusher's write. It reports whether the pusher may go on.
func (c *Conn) afterWrite(err error) bool {
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

// cutSlow closes a connection whose client does not read its pushes.
func (c *Conn) cutSlow() {
	c.server.slowCut.Add(1)
	c.Close()
}

// release lets the pusher send the pushes that hold has held back.
func (c *Conn) release() {
	c.push.mu.Lock()
	defer c.push.mu.Unlock()
	c.push.held = false
	if c.push.claimPusher() {
		go c.pushAll()
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
