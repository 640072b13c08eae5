package resp

import "sync"

// pushCost is the overhead of a queued push in bytes. Limits.PushQueue bounds the sum of overhead
// and frames.
const pushCost = 64

// pushRoom is the largest capacity that an empty queue keeps: 64 pushes in 2 KiB.
const pushRoom = 64

// pushQueue holds the unsent pushes of a connection.
//
// SUBSCRIBE, UNSUBSCRIBE, MONITOR and HELLO change which pushes the client gets. Until the reply to
// such a command is sent, the queue is held: the pusher takes nothing. Pushes that were queued when
// the command began precede the reply. Later pushes follow the reply.
//
//	queue:    p1 p2 │ p3 │ p4 p5                       p1 … p5 in order of publishing
//	replies:  PONG  SUBSCRIBE a  PONG  UNSUBSCRIBE a
//	sent:     PONG p1 p2 SUBSCRIBE a PONG p3 UNSUBSCRIBE a p4 p5
type pushQueue struct {
	mu      sync.Mutex // protects all fields
	stopped sync.Cond  // signaled when running becomes false
	queue   []push
	slid    bool // queue does not begin at the start of its array
	bytes   int
	resp3   bool // later pushes are encoded in RESP3

	held    bool     // only the connection's goroutine changes held
	splices []splice // where to insert pushes into the replies
	mark    int      // number of pushes that the splices insert

	running bool // a pusher runs
	closed  bool // no more pushes are accepted
	slow    bool // the client does not read its pushes fast enough
}

type push struct {
	frame []byte
	topic *topic // nil = not a message of the Broker
}

// splice says that the first count pushes precede the reply at offset.
type splice struct{ offset, count int }

type enqueueResult uint8

const (
	pushQueued   enqueueResult = iota
	pushRefused                // the connection has ended
	pushOverflew               // the queue is full: the connection must be closed
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

func (q *pushQueue) setProto(version int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.resp3 = version == 3
}

// hold makes the queued pushes precede the reply at offset, and holds later pushes back.
func (q *pushQueue) hold(offset int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held = true
	if n := len(q.queue); n > q.mark {
		q.splices = append(q.splices, splice{offset, n})
		q.mark = n
	}
}

// Only the connection's goroutine may call holding.
func (q *pushQueue) holding() bool { return q.held }

// dropTopic drops the pushes of t that were queued after hold, because an UNSUBSCRIBE takes effect
// at the call of hold.
func (q *pushQueue) dropTopic(t *topic) {
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

// splice returns the replies with the pushes that precede them, and removes these pushes from the
// queue.
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

// claimPusher reports whether the caller must start a pusher. If so, it sets running.
func (q *pushQueue) claimPusher() bool {
	if q.running || q.held || len(q.queue) == 0 {
		return false
	}
	q.running = true
	return true
}

// take returns the next pushes, up to about batchBuffer bytes. It joins several pushes in scratch.
// If the pusher must take nothing, take records that the pusher has ended and returns false.
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
	if cap(out) <= 2*batchBuffer { // a larger buffer would stay in memory
		*scratch = out
	}
	return out, true
}

func (q *pushQueue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopLocked()
}

func (q *pushQueue) stopLocked() {
	q.running = false
	q.stopped.Broadcast()
}

// markSlow records that the client is too slow. It returns false if that was known.
func (q *pushQueue) markSlow() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	isNew := !q.slow
	q.slow = true
	return isNew
}

func (q *pushQueue) isSlow() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.slow
}
