package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

const (
	// heartbeatsPerTimeout is so large that a grant need not wait for a heartbeat. For the longest
	// lease, half of the timeout, the last heartbeat must not be older than a sixth of the timeout:
	// see session.giveUpAt.
	heartbeatsPerTimeout = 12
	// maxHeartbeatInterval bounds the time between two heartbeats, which find a dead connection.
	maxHeartbeatInterval = time.Second
	// retryPause is the pause between attempts of work that this server must complete.
	retryPause = 100 * time.Millisecond
)

// run keeps a session open in a slot until the engine is closed. It replaces each lost one.
func (b *Backend) run(l *slot, s *session) {
	for {
		b.Go(func() { b.keepAlive(s) })
		for s.alive() && !b.Stopped() {
			left := time.Until(s.giveUpAt())
			if left <= 0 {
				s.end(fmt.Errorf("the ensemble confirmed nothing for two thirds of %v", s.negotiated()))
			}
			// The ensemble may choose a shorter timeout meanwhile.
			proxy.Sleep(s.ctx, min(left, maxHeartbeatInterval), b.Stopping.Done())
		}
		if b.Stopped() {
			b.leave(l, s)
			return
		}
		b.Log.Warn("lost the session with the ensemble, and with it the leases of this server", "err", context.Cause(s.ctx))
		if !b.Go(s.abandon) {
			s.abandon()
		}
		next := b.nextSession(l, s.tag)
		if next == nil {
			return
		}
		b.Log.Info("opened a new session with the ensemble", "session_timeout", next.negotiated())
		b.replace(l, next)
		s = next
	}
}

// keepAlive makes heartbeats until the session is over, or the engine is closed.
func (b *Backend) keepAlive(s *session) {
	for s.alive() && !b.Stopped() {
		if err := b.heartbeat(s.ctx, s); err != nil && !b.Stopped() {
			b.Log.Debug("the ensemble did not confirm the session", "err", err)
		}
		proxy.Sleep(s.ctx, min(s.negotiated()/heartbeatsPerTimeout, maxHeartbeatInterval), b.Stopping.Done())
	}
}

// heartbeat writes the session's marker. That confirms the session, and reads the clock of the
// ensemble's leader.
func (b *Backend) heartbeat(ctx context.Context, s *session) error {
	for {
		start := time.Now()
		var stat *zk.Stat
		err := s.do(ctx, writes, func(c *zk.Conn) (err error) {
			data := markerOpen
			if b.Stopped() {
				data = markerStopping
			}
			stat, err = c.Set(s.marker(s.tag), data, -1)
			return err
		})
		if err == nil {
			b.clock.Learn(stat.Mtime, start, time.Now())
		}
		if !errors.Is(err, zk.ErrNoNode) {
			return err
		}
		// There is no marker yet, or a person has deleted it.
		if _, err = s.make(ctx, s.marker(s.tag), markerOpen, zk.FlagEphemeral); err != nil {
			return err
		}
	}
}

// leave ends the work in a session at Close. It marks the session as stopping, deletes the waiters'
// nodes, and closes the session if no client owns a mutex in it.
func (b *Backend) leave(l *slot, s *session) {
	late := time.AfterFunc(b.options.Timeout, s.abandon)
	defer late.Stop()
	if b.heartbeat(s.ctx, s) == nil && b.removeWaiters(l, s) {
		s.close()
	} else {
		s.abandon()
	}
}

// removeWaiters deletes the nodes of a session's waiters. free is true if no client owns a mutex in
// the session.
func (b *Backend) removeWaiters(l *slot, s *session) (free bool) {
	free = true
	b.eachMutex(b.inSlot(l), func(m *mutex) {
		for _, n := range m.entries {
			if n.s == s && n.child != "" && n.kind != kindOwner {
				_, _, _ = s.change(s.ctx, deletes(s.latch(m.name, n.child), s.lease(n.guid))...)
			} else if n.s == s {
				free = false
			}
		}
	})
	return free
}

// nextSession opens the session that follows old, which was given up. It returns after the ensemble
// has ended old. Until then the ensemble may execute old's requests. It returns nil after Close.
func (b *Backend) nextSession(l *slot, old tag) *session {
	for logged := false; !b.Stopped(); proxy.Sleep(b.Stopping, retryPause, nil) {
		ctx, cancel := context.WithTimeout(b.Stopping, max(b.options.Timeout, 5*time.Second))
		s, err := b.openSession(ctx)
		cancel()
		b.setFault(l, err)
		if err == nil {
			if err = b.awaitEnd(s, old); err == nil {
				return s
			}
		}
		if !logged && !b.Stopped() {
			b.Log.Warn("cannot open a session with the ensemble; retrying", "err", err)
			logged = true
		}
	}
	return nil
}

// awaitEnd waits until the ensemble has ended the session old. If it returns an error, it has closed s.
func (b *Backend) awaitEnd(s *session, old tag) error {
	stop := context.AfterFunc(b.Stopping, s.close)
	defer stop()
	for {
		ended, err := s.hasEnded(b.Stopping, old)
		if ended {
			return nil
		}
		if err != nil {
			s.close()
			return err
		}
		proxy.Sleep(b.Stopping, retryPause, nil)
	}
}

// setFault records why no new session could be opened; nil = a session was opened. A lasting error
// also ends the waits.
func (b *Backend) setFault(l *slot, err error) {
	b.mu.Lock()
	l.fault = err
	b.mu.Unlock()
	for _, mutex := range b.Waiters.Mutexes() {
		if b.slotOf(mutex) == l {
			b.failWaits(mutex, err)
		}
	}
}

// replace publishes the ends of the leases of a session that the ensemble has ended, and uses the
// next session. Blocked waiters queue again. A polling waiter gets a notice, because no other notice
// would make it ask again.
func (b *Backend) replace(l *slot, next *session) {
	polling := make(map[string]string) // contenders and mutexes by channel
	b.eachMutex(b.inSlot(l), func(m *mutex) {
		for _, n := range m.entries {
			switch {
			case n.child == "" || n.doomed:
			case n.kind == kindOwner:
				b.record(m, n.event(simba.EventExpired, reasonSessionLost))
			case n.kind == kindPolling:
				polling[simba.ContenderChannel(m.name, n.contender)] = simba.OfferNotice(b.lastOwner(m.name), n.contender)
			}
			m.drop(n)
		}
	})
	b.mu.Lock()
	l.session = next
	close(l.replaced)
	l.replaced = make(chan struct{})
	b.mu.Unlock()
	for _, mutex := range b.Waiters.Mutexes() {
		if b.slotOf(mutex) == l {
			b.rejoin(mutex)
		}
	}
	for channel, notice := range polling {
		b.Notices.Publish(channel, notice)
	}
}

func (b *Backend) inSlot(l *slot) func(mutex string) bool {
	return func(mutex string) bool { return b.slotOf(mutex) == l }
}

// eachMutex calls f for each mutex that this server knows and for which is is true, with its lock held.
func (b *Backend) eachMutex(is func(mutex string) bool, f func(*mutex)) {
	b.mu.Lock()
	names := slices.Collect(maps.Keys(b.mutexes))
	b.mu.Unlock()
	for _, name := range names {
		if is(name) {
			m := b.lock(name)
			f(m)
			b.unlock(m)
		}
	}
}
