package backendtest

import (
	"context"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
)

// late is a journal that acknowledges a change of a lease some time after another one has made it
// durable, from a goroutine of its own, as one does that waits for other machines.
type late struct {
	engine.Journal
	by func() time.Duration

	mu   sync.Mutex
	more *sync.Cond  // signals each acknowledgement
	held []simba.Seq // changes that it has yet to acknowledge, in order
	last simba.Seq   // the last change appended
}

// everything is what a journal reports that holds nothing back.
const everything simba.Seq = 1<<64 - 1

// Late returns a journal that acknowledges what j makes durable as much later as by says.
func Late(j engine.Journal, by func() time.Duration) engine.Journal {
	l := &late{Journal: j, by: by}
	l.more = sync.NewCond(&l.mu)
	if seq := j.Committed(); seq != everything {
		l.last = seq
	}
	return l
}

// Append implements engine.Journal. A change of a lease holds back all that follow.
func (l *late) Append(ch simba.Change) (holds bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	holds = l.Journal.Append(ch) || ch.Kind != simba.ChangeNone
	if l.last = ch.Seq; holds {
		l.held = append(l.held, ch.Seq)
	}
	return holds
}

// AppendAll implements engine.Journal.
func (l *late) AppendAll(changes []simba.Change) (holds bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.Journal.AppendAll(changes)
	for _, ch := range changes {
		l.held = append(l.held, ch.Seq)
		l.last = ch.Seq
	}
	return true
}

// Committed implements engine.Journal.
func (l *late) Committed() simba.Seq {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tellableLocked()
}

func (l *late) tellableLocked() simba.Seq {
	if len(l.held) > 0 {
		return l.held[0] - 1
	}
	return min(l.last, l.Journal.Committed())
}

// Begin implements engine.Journal.
func (l *late) Begin(seq simba.Seq) (waits bool) {
	if seq <= l.Committed() {
		return false
	}
	go func() { _ = l.Commit(context.Background(), seq) }() // whoever calls Commit meets the error, too
	return true
}

// Commit implements engine.Journal.
func (l *late) Commit(ctx context.Context, seq simba.Seq) error {
	if seq <= l.Committed() {
		return nil
	}
	if err := l.Journal.Commit(ctx, seq); err != nil {
		return err
	}
	time.AfterFunc(l.by(), func() { l.acknowledge(seq) })
	l.mu.Lock()
	defer l.mu.Unlock()
	for seq > l.tellableLocked() {
		l.more.Wait()
	}
	return nil
}

func (l *late) acknowledge(seq simba.Seq) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.held) && l.held[n] <= seq {
		n++
	}
	l.held = l.held[n:]
	l.more.Broadcast()
}
