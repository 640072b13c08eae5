package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
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
		b.keepAlive(s)
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

// keepAlive makes heartbeats. It gives the session up if nothing confirms it in time. It returns
// when the session is over, or the engine is closed.
func (b *Backend) keepAlive(s *session) {
	var busy atomic.Bool // a heartbeat is under way
	for s.alive() && !b.Stopped() {
		left := time.Until(s.giveUpAt())
		if left <= 0 {
			s.end(fmt.Errorf("the ensemble confirmed nothing for two thirds of %v", s.negotiated()))
			return
		}
		if !busy.Swap(true) {
			b.Go(func() {
				if err := b.heartbeat(s.ctx, s); err != nil && !b.Stopped() {
					b.Log.Debug("the ensemble did not confirm the session", "err", err)
				}
				busy.Store(false)
			})
		}
		proxy.Sleep(s.ctx, min(left, s.negotiated()/heartbeatsPerTimeout, maxHeartbeatInterval), b.Stopping.Done())
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
	ctx, cancel := context.WithTimeout(s.ctx, b.options.Timeout)
	defer cancel()
	finished := make(chan bool, 1)
	var work sync.WaitGroup
	work.Go(func() {
		finished <- b.heartbeat(ctx, s) == nil && b.removeWaiters(ctx, l, s)
	})
	select {
	case free := <-finished:
		if free {
			s.close()
			return
		}
	case <-ctx.Done():
	}
	s.abandon()
	work.Wait()
}

// removeWaiters deletes the nodes of a session's waiters. free is true if no client owns a mutex in
// the session.
func (b *Backend) removeWaiters(ctx context.Context, l *slot, s *session) (free bool) {
	free = true
	b.eachMutex(b.inSlot(l), func(m *mutex) {
		for _, n := range m.entries {
			if n.s == s && n.child != "" && n.kind != kindOwner {
				_, _, _ = s.change(ctx, deletes(s.latch(m.name, n.child), s.lease(n.guid))...)
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
	for logged := false; !b.Stopped(); {
		ctx, cancel := context.WithTimeout(b.Stopping, max(b.options.Timeout, 5*time.Second))
		s, err := b.join(ctx, nil)
		cancel()
		b.setFault(l, err)
		for err == nil && s.alive() && !b.Stopped() && time.Now().Before(s.giveUpAt()) {
			var ended bool
			ctx, cancel := context.WithTimeout(b.Stopping, min(b.options.Timeout, s.negotiated()/3))
			ended, err = call(ctx, b, func(ctx context.Context) (bool, error) { return s.hasEnded(ctx, old) })
			cancel()
			if ended {
				return s
			}
			if err == nil {
				proxy.Sleep(b.Stopping, retryPause, nil)
			}
		}
		if s != nil {
			s.close() // it has not been used
		}
		if err != nil && !logged && !b.Stopped() {
			b.Log.Warn("cannot open a session with the ensemble; retrying", "err", err)
			logged = true
		}
		proxy.Sleep(b.Stopping, retryPause, nil)
	}
	return nil
}

// setFault records why no new session could be opened; nil = a session was opened. Only a lasting
// error counts: requests return it at once, and it ends the waits.
func (b *Backend) setFault(l *slot, err error) {
	if b.Stopped() {
		return
	}
	if !lasting(err) {
		err = nil
	}
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
	l.session, l.fault = next, nil
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
