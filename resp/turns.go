package resp

import "time"

const (
	// longTurn is how long a connection may compute ahead of what it has waited: from then on it takes turns. No single
	// batch counts for more: what took one so long may have been others, that had the processor or a lock.
	longTurn = time.Millisecond
	// mostOwed bounds how long it takes a connection to be like all others again.
	mostOwed = 20 * time.Millisecond
	// patience bounds how long it waits for its turn: a command that computes without end must not keep away the one
	// that ends it.
	patience = 100 * time.Millisecond
)

// turns has connections that compute without pause take turns, so few at a time that a processor is left for the
// others. While all processors are busy, Go's scheduler looks only every 10 ms for what came from the network.
//
// Its capacity is how many compute at a time; nil has nobody wait.
type turns chan struct{}

func newTurns(n int) turns {
	if n <= 0 {
		return nil
	}
	return make(turns, n)
}

// enter waits for a turn, and reports whether it got one.
func (t turns) enter() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case t <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

// leave ends a turn, after which nobody has it for the pause.
func (t turns) leave(pause time.Duration) {
	if pause <= 0 {
		<-t
		return
	}
	time.AfterFunc(pause, func() { <-t })
}

// effort is what a connection has computed. It is a bucket that leaks: filled by computing, emptied by
// waiting for whatever, but for a turn.
type effort struct {
	owed      time.Duration
	since     time.Duration // from created: when it began to compute, or to wait
	computing bool
	inTurn    bool
	served    int64 // Server.served when the turn began
}

// compute is called before a command is executed.
func (c *Conn) compute() {
	e := &c.effort
	if c.server.turns == nil || e.computing || c.polled() {
		return
	}
	now := c.age()
	e.owed = max(0, e.owed-(now-e.since))
	if e.owed > longTurn {
		e.inTurn = c.server.turns.enter()
		now, e.served = c.age(), c.server.served.Load()
	}
	e.since, e.computing = now, true
}

// Rest is called before anything that may wait: it ends the connection's turn, if it has one. A handler calls it that
// waits otherwise than by Await.
func (c *Conn) Rest() {
	e := &c.effort
	if !e.computing {
		return
	}
	now := c.age()
	took := now - e.since
	e.owed = min(e.owed+min(took, longTurn), mostOwed)
	e.since, e.computing = now, false
	if e.inTurn {
		e.inTurn = false
		c.server.turns.leave(c.pauseAfter(took))
	}
}

// pauseAfter is for how long nobody has a turn after one that took so long, in which others were served: as long again. Without
// it they would share the other processors with their own clients. Who computes alone has no pause.
func (c *Conn) pauseAfter(took time.Duration) time.Duration {
	if c.server.served.Load()-c.effort.served <= 1 { // one was its own, for the next command
		return 0
	}
	return min(took, patience)
}
