package resp

import "sync"

// pushCost is charged to Limits.PushQueue for each push besides its bytes: what
// the queue itself needs for it.
const pushCost = 64

// pushRoom is how many pushes an empty queue keeps room for: 2 KiB, for who has been pushed anything.
const pushRoom = 64

// pushQueue is what a connection has yet to be pushed. Publishers add to it, the
// pusher takes from it.
//
// While a command that changes what is pushed (SUBSCRIBE, UNSUBSCRIBE, MONITOR,
// HELLO) has not been answered, the queue is held: the pusher takes nothing. What
// was queued before such a command is sent before its reply, from the mark on
// after it.
//
//	queue:    p1 p2 │ p3 │ p4 p5                       p1 … p5 in order of publishing
//	replies:  PONG  SUBSCRIBE a  PONG  UNSUBSCRIBE a
//	sent:     PONG p1 p2 SUBSCRIBE a PONG p3 UNSUBSCRIBE a p4 p5
type pushQueue struct {
	mu      sync.Mutex // protects all fields
	stopped sync.Cond  // running became false
	queue   []push
	slid    bool // queue begins within its array, which may be large
	bytes   int
	resp3   bool // how pushes to come are encoded

	held    bool     // set and cleared by the connection's goroutine only
	splices []splice // what of the queue goes where among the replies
	mark    int      // so many pushes in the queue have their place

	running bool // there is a pusher
	closed  bool // take no more
	cut     bool // the connection did not keep up
}

type push struct {
	frame []byte
	topic *topic // nil: not from the Broker
}

// splice says that the pushes up to a count go before the reply at an offset.
type splice struct{ offset, count int }

// pushed is what became of a push.
type pushed uint8

const (
	pushQueued   pushed = iota
	pushRefused         // the connection has ended
	pushOverflew        // the queue is full: the connection is to be cut
)

func (q *pushQueue) init() { q.stopped.L = &q.mu }

func (q *pushQueue) proto() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.resp3 {
		return 3
	}
	return 2
}

// setProto sets the encoding of pushes to come.
func (q *pushQueue) setProto(version int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.resp3 = version == 3
}

// hold gives what is queued its place before the reply at the offset, and holds
// back what comes after it.
func (q *pushQueue) hold(offset int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = true
	if n := len(q.queue); n > q.mark {
		q.splices = append(q.splices, splice{offset, n})
		q.mark = n
	}
}

// holding is for the connection's goroutine only, which alone changes held.
func (q *pushQueue) holding() bool { return q.held }

// forget drops what was queued for t since the mark: the command that unsubscribes
// takes effect at its beginning.
func (q *pushQueue) forget(t *topic) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := q.queue[:q.mark]
	for _, p := range q.queue[q.mark:] {
		if p.topic == t {
			q.bytes -= len(p.frame) + pushCost
			continue
		}
		kept = append(kept, p)
	}
	clear(q.queue[len(kept):])
	q.queue = kept
}

// splice returns the replies with the pushes that have their place among them.
func (q *pushQueue) splice(replies []byte) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mark == 0 {
		return replies
	}
	var out []byte
	offset, count := 0, 0
	for _, s := range q.splices {
		out = append(out, replies[offset:s.offset]...)
		for _, p := range q.queue[count:s.count] {
			out = append(out, p.frame...)
		}
		offset, count = s.offset, s.count
	}
	q.drop(q.mark)
	q.mark, q.splices = 0, nil
	return append(out, replies[offset:]...)
}

// drop removes the first n pushes.
func (q *pushQueue) drop(n int) {
	for _, p := range q.queue[:n] {
		q.bytes -= len(p.frame) + pushCost
	}
	clear(q.queue[:n])
	switch {
	case n < len(q.queue):
		q.queue, q.slid = q.queue[n:], true
	case !q.slid && cap(q.queue) <= pushRoom:
		q.queue = q.queue[:0]
	default:
		q.queue, q.slid = nil, false
	}
}

// start reports whether the caller is to start a pusher; it counts as running.
func (q *pushQueue) start() bool {
	if q.running || q.held || len(q.queue) == 0 {
		return false
	}
	q.running = true
	return true
}

// take returns the next pushes, about as many bytes as a batch, put together in
// scratch if there are several; ok is false if the pusher has to end.
func (q *pushQueue) take(scratch *[]byte) (frames []byte, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held || len(q.queue) == 0 {
		q.stopLocked()
		return nil, false
	}
	if len(q.queue) == 1 {
		frame := q.queue[0].frame
		q.drop(1)
		return frame, true
	}
	out, n := (*scratch)[:0], 0
	for n < len(q.queue) && len(out) < batchBuffer {
		out = append(out, q.queue[n].frame...)
		n++
	}
	q.drop(n)
	if cap(out) <= 2*batchBuffer { // else one large push would be kept in memory
		*scratch = out
	}
	return out, true
}

// goesOn reports whether there is more to take; if not, the pusher has to end.
func (q *pushQueue) goesOn() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.held || len(q.queue) == 0 {
		q.stopLocked()
		return false
	}
	return true
}

// stop says that there is no pusher any more.
func (q *pushQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
}

func (q *pushQueue) stopLocked() {
	q.running = false
	q.stopped.Broadcast()
}

// cutOff notes that the connection does not keep up, and reports whether that is new.
func (q *pushQueue) cutOff() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	isNew := !q.cut
	q.cut = true
	return isNew
}

func (q *pushQueue) wasCut() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cut
}
