package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

const (
	// beats is how often in a session's timeout we show that we are there.
	heartbeatsPerTimeout = 3
	// longestBeat bounds the time between two, so that a dead connection is found soon.
	maxHeartbeatInterval = time.Second
	// retryPause is between attempts to do something that must be done some time.
	retryPause = 100 * time.Millisecond
	// sweepEvery is how often we look whether what we follow is still wanted.
	unwantedCheckInterval = 10 * time.Second
)

// supervise keeps a lane's session with the ensemble until the engine is closed.
func (b *Backend) runSlot(l *sessionSlot, s *session) {
	for {
		b.keepAlive(s)
		polling := b.forgetNodes(l, s)
		if b.life.Err() != nil {
			s.abandon() // nothing, unless it was lost just then
			return
		}
		ctx, over := context.WithCancel(b.life)
		ended := s
		b.all.Go(func() { ended.closeAfterTimeout(ctx) }) // this goroutine is one of all, so that does not race with Close
		s = b.nextSession(l, ended)
		over()
		if s == nil {
			return
		}
		b.mu.Lock()
		l.session, l.fault = s, nil
		close(l.renewed)
		l.renewed = make(chan struct{})
		b.mu.Unlock()
		b.log.Info("there is a new session with the ensemble")
		b.rejoinAll(l)
		b.notifyPolling(polling)
	}
}

// keep shows the ensemble that we are there and finds out if the session is over.
func (b *Backend) keepAlive(s *session) {
	ticker := time.NewTicker(min(s.negotiated()/heartbeatsPerTimeout, maxHeartbeatInterval))
	defer ticker.Stop()
	over := time.NewTimer(time.Until(s.giveUpAt()))
	defer over.Stop()
	var heartbeat chan struct{}
	for {
		select {
		case <-ticker.C:
			if heartbeat != nil {
				select {
				case <-heartbeat:
				default:
					continue
				}
			}
			heartbeat = make(chan struct{})
			done := heartbeat
			b.all.Go(func() {
				defer close(done)
				b.heartbeat(s)
			})
		case <-over.C:
			if left := time.Until(s.giveUpAt()); left > 0 {
				over.Reset(left)
				continue
			}
			s.end(fmt.Errorf("the ensemble confirmed nothing for two thirds of %v", s.negotiated()))
		case <-s.over:
			return
		case <-b.life.Done():
			b.closeOrAbandon(s)
			return
		}
	}
}

func (b *Backend) heartbeat(s *session) {
	ctx, cancel := context.WithTimeout(b.life, min(b.options.Timeout, s.negotiated()/heartbeatsPerTimeout))
	defer cancel()
	start := time.Now()
	mtime, err := s.heartbeat(ctx)
	switch {
	case err == nil:
		b.clock.observe(mtime, start, time.Now())
	case errors.Is(err, zk.ErrNoNode):
		err = s.register(ctx) // somebody has deleted the marker, or what it was in
	}
	if err != nil && b.life.Err() == nil {
		b.log.Debug("the ensemble did not confirm the session", "err", err)
	}
}

// farewell ends the session at Close, unless somebody may have been told of a tenure in it.
func (b *Backend) closeOrAbandon(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), b.options.Timeout)
	defer cancel()
	waiting, held := b.nodesOf(s)
	owns := make([]bool, len(waiting))
	_ = each(len(waiting), func(i int) (err error) { // where it is not known the session is left to its timeout
		owns[i], err = b.deleteWaiter(ctx, waiting[i])
		owns[i] = owns[i] || err != nil
		return err
	})
	if held || slices.Contains(owns, true) {
		s.abandon()
		return
	}
	s.close()
}

// dismiss deletes a waiter's node, unless its contender has come to own the mutex by it, as it may through another server that
// we have yet to hear of.
func (b *Backend) deleteWaiter(ctx context.Context, n *node) (owns bool, err error) {
	b.mu.Lock()
	version := n.version
	b.mu.Unlock()
	for {
		_, _, err := n.s.delete(ctx, n, version, nil, false)
		if !errors.Is(err, zk.ErrBadVersion) {
			return false, ignoreNoNode(err)
		}
		lease, err := n.s.get(ctx, n.s.lease(n.guid))
		if err != nil {
			return false, ignoreNoNode(err)
		}
		if rec, err := decodeRecord(lease.data); err == nil && rec.Kind == kindOwner && !rec.Over {
			return true, nil
		}
		version = lease.stat.Version
	}
}

// successor opens the session that comes after one that was given up, and returns it when the ensemble has ended that one: until
// then other servers may go on with its tenures, and requests of its own may still be on their way.
func (b *Backend) nextSession(l *sessionSlot, old *session) *session {
	logged := false
	for {
		s := b.reconnect(l)
		if s == nil {
			return nil
		}
		old.allowReconnect(true)
		for s.alive() && time.Now().Before(s.giveUpAt()) {
			ctx, cancel := context.WithTimeout(b.life, min(b.options.Timeout, s.negotiated()/heartbeatsPerTimeout))
			free, err := s.hasEnded(ctx, old.tag)
			cancel()
			if free {
				return s
			}
			if !logged && b.life.Err() == nil {
				b.log.Warn("waiting until the ensemble has ended the session that was lost", "err", err)
				logged = true
			}
			if !b.pause(retryPause) {
				break
			}
		}
		old.allowReconnect(false)
		s.close() // nobody has used it
		if b.life.Err() != nil {
			return nil
		}
	}
}

// reconnect opens a lane's next session, however long that takes; nil = the engine is closed.
func (b *Backend) reconnect(l *sessionSlot) *session {
	logged := false
	for {
		ctx, cancel := context.WithTimeout(b.life, max(b.options.Timeout, 5*time.Second))
		s, err := b.join(ctx)
		cancel()
		if b.life.Err() == nil {
			b.setFault(l, err)
		}
		if err == nil {
			return s
		}
		if b.life.Err() != nil {
			return nil
		}
		if !logged {
			b.log.Warn("cannot open a session with the ensemble; trying on", "err", err)
			logged = true
		}
		if !b.pause(retryPause) {
			return nil
		}
	}
}

// pause waits; it reports false if the engine is closed.
func (b *Backend) pause(d time.Duration) bool { return sleep(b.life, d) }

// lane is one of the sessions side by side: ZooKeeper serves the requests of a session in
// order, so one alone would be slow for many clients. A mutex has one lane for ever.
type sessionSlot struct {
	// Guarded by Backend.mu.
	session *session
	renewed chan struct{} // closed when session is replaced
	fault   error         // why there will be no other before somebody mends it; nil = none is known
}

// lane returns the lane of a mutex.
func (b *Backend) slotOf(mutex string) *sessionSlot {
	return b.slots[scanHash(mutex)%uint64(len(b.slots))]
}

// current returns the session to use now for a mutex, waiting for one until ctx ends.
func (b *Backend) current(ctx context.Context, mutex string) (*session, error) {
	l := b.slotOf(mutex)
	for {
		b.mu.Lock()
		s, renewed, fault := l.session, l.renewed, l.fault
		b.mu.Unlock()
		switch {
		case s.alive():
			return s, s.await(ctx)
		case fault != nil:
			return nil, fault
		}
		select {
		case <-renewed:
		case <-ctx.Done():
			return nil, errCutOff
		}
	}
}
