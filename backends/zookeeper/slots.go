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
	// retryPause is the pause between attempts of work that this server must complete.
	retryPause = 100 * time.Millisecond
	// unwantedCheckInterval is how often the server stops watchers that no client needs.
	unwantedCheckInterval = 10 * time.Second
)

// runSlot keeps a session open in a slot until the engine is closed. It replaces each lost one.
func (b *Backend) runSlot(l *sessionSlot, s *session) {
	for {
		b.keepAlive(s)
		polling := b.forgetNodes(l, s)
		if b.life.Err() != nil {
			s.abandon() // has an effect only if the session was lost during Close
			return
		}
		// Only the ensemble ends the session. Other servers may have renewed its leases.
		// runSlot is itself counted in b.all, so this Go does not race with Wait.
		b.all.Go(s.abandon)
		if s = b.nextSession(l, s.tag); s == nil {
			return
		}
		b.mu.Lock()
		l.session, l.fault = s, nil
		close(l.renewed)
		l.renewed = make(chan struct{})
		b.mu.Unlock()
		b.log.Info("opened a new session with the ensemble", "session_timeout", s.negotiated())
		b.rejoinAll(l)
		b.notifyPolling(polling)
	}
}

// keepAlive sends heartbeats. It gives the session up when nothing confirms it in time. It returns
// when the session is over.
func (b *Backend) keepAlive(s *session) {
	next := time.NewTimer(0)
	defer next.Stop()
	over := time.NewTimer(time.Until(s.giveUpAt()))
	defer over.Stop()
	var heartbeat chan struct{}
	for {
		select {
		case <-next.C:
			next.Reset(heartbeatInterval(s.negotiated()))
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
	ctx, cancel := context.WithTimeout(b.life, min(b.options.Timeout, s.negotiated()/3))
	defer cancel()
	start := time.Now()
	stat, err := s.heartbeat(ctx)
	switch {
	case err == nil:
		b.clock.observe(stat.Mtime, start, time.Now())
	case errors.Is(err, zk.ErrNoNode):
		err = s.register(ctx) // the marker or its parent was deleted
	}
	if err != nil && b.life.Err() == nil {
		b.log.Debug("the ensemble did not confirm the session", "err", err)
	}
}

// closeOrAbandon deletes the waiters' nodes at Close and ends the session. If a client may own a
// mutex in the session, closeOrAbandon does not end the session, which then ends by its timeout.
func (b *Backend) closeOrAbandon(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), b.options.Timeout)
	defer cancel()
	waiting, held := b.nodesOf(s)
	owns := make([]bool, len(waiting))
	_ = each(len(waiting), func(i int) (err error) { // an unknown outcome counts as owning
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

// deleteWaiter deletes a waiter's node, unless its contender has become the owner, perhaps through
// another server.
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

// nextSession opens the session that follows old, which was given up. It returns after the ensemble
// has ended old. Until then old's tenures may go on through other servers, and the ensemble may
// execute old's requests. It returns nil after Close.
func (b *Backend) nextSession(l *sessionSlot, old tag) *session {
	logged := false
	for {
		s := b.reconnect(l)
		if s == nil {
			return nil
		}
		for s.alive() && time.Now().Before(s.giveUpAt()) {
			ctx, cancel := context.WithTimeout(b.life, min(b.options.Timeout, s.negotiated()/3))
			free, err := s.hasEnded(ctx, old)
			cancel()
			if free {
				return s
			}
			if !logged && b.life.Err() == nil {
				b.log.Warn("waiting until the ensemble has ended the lost session", "err", err)
				logged = true
			}
			if !b.pause(retryPause) {
				break
			}
		}
		s.close() // it has not been used
		if b.life.Err() != nil {
			return nil
		}
	}
}

// reconnect opens a slot's next session, however long that takes. It returns nil after Close.
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
			b.log.Warn("cannot open a session with the ensemble; retrying", "err", err)
			logged = true
		}
		if !b.pause(retryPause) {
			return nil
		}
	}
}

// pause waits for d. It returns false after Close.
func (b *Backend) pause(d time.Duration) bool { return sleep(b.life, d) }

// sessionSlot holds one of several concurrent sessions. ZooKeeper serves the requests of a session
// in order, so a single one would be slow for many clients. A mutex always uses the same slot.
type sessionSlot struct {
	// Guarded by Backend.mu.
	session *session
	renewed chan struct{} // closed when session is replaced
	fault   error         // the lasting error that prevents a new session; nil = none
}

func (b *Backend) slotOf(mutex string) *sessionSlot {
	return b.slots[scanHash(mutex)%uint64(len(b.slots))]
}

// current returns the session for a mutex. If there is none, it waits for a new one, at most until
// ctx ends.
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
