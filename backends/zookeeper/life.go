package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

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
func (st *store) run(l *slot, s *session) {
	for {
		st.Go(func() { st.keepAlive(s) })
		for s.alive() && !st.Stopped() {
			left := time.Until(s.giveUpAt())
			if left <= 0 {
				s.end(fmt.Errorf("the ensemble confirmed nothing for two thirds of %v", s.negotiated()))
			}
			// The ensemble may choose a shorter timeout meanwhile.
			proxy.Sleep(s.ctx, min(left, maxHeartbeatInterval), st.Stopping.Done())
		}
		if st.Stopped() {
			st.leave(l, s)
			return
		}
		st.log.Warn("lost a session with the ensemble, and with it its leases", "err", context.Cause(s.ctx))
		if !st.Go(s.abandon) {
			s.abandon()
		}
		next := st.nextSession(l, s.tag)
		if next == nil {
			return
		}
		st.log.Info("opened a new session with the ensemble", "session_timeout", next.negotiated())
		st.replace(l, next)
		s = next
	}
}

// keepAlive makes heartbeats until the session is over, or the engine is closed.
func (st *store) keepAlive(s *session) {
	for s.alive() && !st.Stopped() {
		if err := st.heartbeat(s.ctx, s); err != nil && !st.Stopped() {
			st.log.Debug("the ensemble did not confirm the session", "err", err)
		}
		proxy.Sleep(s.ctx, min(s.negotiated()/heartbeatsPerTimeout, maxHeartbeatInterval, max(s.patience/2, retryPause)), st.Stopping.Done())
	}
}

// heartbeat writes the session's marker. That confirms the session, and reads the clock of the
// ensemble's leader.
func (st *store) heartbeat(ctx context.Context, s *session) error {
	for {
		start := time.Now()
		var stat *zk.Stat
		err := s.do(ctx, writes, func(c *zk.Conn) (err error) {
			data := markerOpen
			if st.Stopped() {
				data = markerStopping
			}
			stat, err = c.Set(s.marker(s.tag), data, -1)
			return err
		})
		if err == nil {
			st.clock.Learn(stat.Mtime, start, time.Now())
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
func (st *store) leave(l *slot, s *session) {
	late := time.AfterFunc(st.options.Timeout, s.abandon)
	defer late.Stop()
	err := st.heartbeat(s.ctx, s)
	for ; broken(err); err = st.heartbeat(s.ctx, s) {
		proxy.Sleep(s.ctx, brokenPause, nil)
	}
	if err == nil && st.removeWaiters(l, s) {
		s.close()
	} else {
		s.abandon()
	}
}

// removeWaiters deletes the nodes of a session's waiters. free is true if no client owns a mutex in
// the session.
func (st *store) removeWaiters(l *slot, s *session) (free bool) {
	free = true
	st.eachMutex(l, func(m *mutex) {
		for _, n := range m.entries {
			for n.child == "" && m.has(n) && s.alive() { // its step removes it, or decides
				m.apart(func() { proxy.Sleep(s.ctx, retryPause, nil) })
			}
			if n.s == s && (n.kind != kindOwner || n.doomed || n.over()) {
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
func (st *store) nextSession(l *slot, old tag) *session {
	for logged := false; !st.Stopped(); proxy.Sleep(st.Stopping, retryPause, nil) {
		ctx, cancel := context.WithTimeout(st.Stopping, max(st.options.Timeout, 5*time.Second))
		s, err := st.openSession(ctx)
		cancel()
		st.mu.Lock()
		l.fault = err
		st.mu.Unlock()
		if err == nil {
			stop := context.AfterFunc(st.Stopping, s.close)
			var ended bool
			for ; err == nil && !ended; ended, err = s.hasEnded(st.Stopping, old) {
				proxy.Sleep(st.Stopping, retryPause, nil)
			}
			if stop(); ended {
				return s
			}
			s.close()
		}
		if !logged && !st.Stopped() {
			st.log.Warn("cannot open a session with the ensemble; retrying", "err", err)
			logged = true
		}
	}
	return nil
}

// replace tells the engine that the tenures and the queue entries of a session have ended, and uses
// the next session. If that has a shorter timeout, the waits end whose leases it cannot vouch for.
func (st *store) replace(l *slot, next *session) {
	st.eachMutex(l, func(m *mutex) {
		for _, n := range m.entries {
			m.drop(n)
			switch got := next.negotiated(); {
			case n.doomed:
			case n.kind == kindBlocked && got < n.s.negotiated() && n.ttl+n.transition > got/2:
				st.hooks.Left(m.name, n.contender, "lease too long")
			case n.child != "":
				st.lost(m, n, "zookeeper session lost")
			}
		}
	})
	st.mu.Lock()
	defer st.mu.Unlock()
	l.session = next
	close(l.replaced)
	l.replaced = make(chan struct{})
}
