package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Guard implements simba.Backend. It costs one round trip if the owner last asked this server.
func (b *Backend) Guard(ctx context.Context, r simba.GuardRequest) (out simba.Outcome, err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return out, err
	}
	defer leave()
	err = b.withLock(ctx, nodeKey{r.Mutex, r.Contender}, func(s *session) error {
		n, err := b.owned(ctx, s, nodeKey{r.Mutex, r.Contender}, r.Token)
		if err != nil {
			return err
		}
		if n == nil || r.Token != 0 && r.Token != n.token {
			h, err := b.inspect(ctx, s, r.Mutex)
			if err == nil && h.owned && !h.bare && h.contender == r.Contender && (r.Token == 0 || r.Token == h.token) {
				return errChanged // the contender has become the owner meanwhile
			}
			out = h.outcome(simba.StatusLost)
			return err
		}
		b.mu.Lock()
		binding := n.binding
		b.mu.Unlock()
		if err := b.renew(ctx, n, r.TTL, r.Transition, binding); err != nil {
			return err
		}
		b.counters.renewed.Add(1)
		out = b.ownOutcome(n, simba.StatusRenewed)
		return nil
	})
	return out, b.failed(err)
}

// Release implements simba.Backend.
func (b *Backend) Release(ctx context.Context, r simba.ReleaseRequest) (released bool, _ simba.Seq, err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return false, 0, err
	}
	defer leave()
	k := nodeKey{r.Mutex, r.Contender}
	err = b.withLock(ctx, k, func(s *session) error {
		n, err := b.owned(ctx, s, k, r.Token)
		if err != nil {
			return err
		}
		if n == nil {
			if r.Token != 0 || r.Session != 0 {
				return nil
			}
			return b.leaveQueue(ctx, s, k)
		}
		b.mu.Lock()
		bound := r.Session == 0 || n.binding == b.binding(r.Session)
		b.mu.Unlock()
		if !bound || r.Token != 0 && r.Token != n.token {
			return nil
		}
		err = asUnknownIfUncertain(b.removeOnce(ctx, n, simba.Event{Kind: simba.EventReleased, Reason: r.Reason}, thisVersion))
		released = err == nil
		return err // if the node is gone, withLock repeats the request: there may be a later tenure
	})
	return released, 0, b.failed(err)
}

// leaveQueue removes a waiter's node. It returns errChanged if the waiter may have become the owner
// meanwhile. The caller then starts again and releases the tenure.
func (b *Backend) leaveQueue(ctx context.Context, s *session, k nodeKey) error {
	n, first, err := b.locate(ctx, s, k)
	if n == nil || err != nil {
		return err
	}
	b.mu.Lock()
	over := n.over && !n.ownsLocked(time.Now()) // the end is recorded, but the node still exists
	undecided := first && n.foreign && n.undecidedLocked()
	b.mu.Unlock()
	switch {
	case over:
		err = b.removeOnce(ctx, n, simba.Event{Kind: simba.EventExpired}, thisVersion)
	case undecided: // the creator has yet to write whether the node owns the mutex
		return errChanged
	default:
		err = b.removeOnce(ctx, n, simba.Event{Kind: simba.EventLeft, Reason: "left"}, asWaiter)
	}
	if errors.Is(err, errChanged) {
		return err
	}
	b.waiters.Grant(k.mutex, k.contender, proxy.Grant{}) // ends its wait without a lease
	return ignoreNoNode(err)
}

// Break implements simba.Backend. It refuses to end the leadership of a JVM's LeaderLatch. A latch
// (Curator 5.4) does not watch its own node, so there would be two leaders.
func (b *Backend) Break(ctx context.Context, mutex, reason string) (broken bool, _ simba.Seq, err error) {
	ctx, leave, err := b.enter(ctx)
	if err != nil {
		return false, 0, err
	}
	defer leave()
	err = b.retryRead(ctx, mutex, func(s *session) error {
		for {
			h, err := b.inspect(ctx, s, mutex)
			if err != nil || !h.owned {
				return err
			}
			if h.bare {
				return fmt.Errorf("the owner %s is a JVM's LeaderLatch, which would not notice; stop its process instead: %w", h.contender, simba.ErrNotServed)
			}
			broken, err = b.breakNode(ctx, s, mutex, h.child, reason)
			if broken || err != nil {
				return err
			}
		}
	})
	return broken, 0, b.failed(err)
}

func (b *Backend) breakNode(ctx context.Context, s *session, mutex, child, reason string) (bool, error) {
	n, err := b.decided(ctx, s, mutex, child)
	if err != nil {
		return false, ignoreNoNode(err)
	}
	unlock, err := b.lockKey(ctx, n.key())
	if err != nil {
		return false, err
	}
	defer unlock()
	b.mu.Lock()
	owner := n.kind == kindOwner
	b.mu.Unlock()
	if !owner {
		return false, nil
	}
	err = asUnknownIfUncertain(b.removeOnce(ctx, n, simba.Event{Kind: simba.EventBroken, Reason: reason}, thisVersion))
	return err == nil, ignoreNoNode(err)
}

// withLock runs a request under the lock of a key. It repeats the request if something has changed
// meanwhile, but only within one session.
func (b *Backend) withLock(ctx context.Context, k nodeKey, f func(*session) error) error {
	unlock, err := b.lockKey(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	for {
		s, err := b.current(ctx, k.mutex)
		if err != nil {
			return err
		}
		if b.hasOrphans(k) {
			err = b.reconcile(ctx, s, k)
		}
		if err == nil {
			err = f(s)
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, errors.Is(err, errUnknown), lasting(err), certain(err) && !errors.Is(err, zk.ErrNoNode):
			return err
		case errors.Is(err, errSessionOver):
			// The request may have been done, and another attempt could change a later tenure.
			return errUnknown
		case errors.Is(err, errChanged): // another server has yet to write the outcome
			b.pause(decidePause)
		}
	}
}

// errChanged is returned when a node is no longer as the request found it. The caller starts the
// request again.
var errChanged = errors.New("the node was changed meanwhile")

// owned returns the node by which a contender owns the mutex, or nil if it does not. Before it
// returns nil for an ended lease, it records the end in the ensemble (markOver, expire). If token
// is not that of the known node, another server may have granted a later tenure. So owned then
// reads the ensemble.
func (b *Backend) owned(ctx context.Context, s *session, k nodeKey, token uint64) (*node, error) {
	for {
		n := b.nodeAt(k)
		if n == nil || n.s != s {
			n, first, err := b.locate(ctx, s, k)
			if err != nil || n == nil || !first {
				return nil, err
			}
			if n, err = b.decided(ctx, s, k.mutex, n.child); err != nil {
				return nil, ignoreNoNode(err)
			}
			b.mu.Lock()
			owner, owns := n.kind == kindOwner, n.ownsLocked(time.Now())
			if owns && n.foreign {
				b.addLocked(n)
			}
			b.mu.Unlock()
			if owns {
				return n, nil
			}
			if owner {
				err = b.markOver(ctx, n)
			}
			if !errors.Is(err, zk.ErrBadVersion) {
				return nil, ignoreNoNode(err)
			}
			continue
		}
		b.mu.Lock()
		owner, owns, version := n.kind == kindOwner, n.ownsLocked(time.Now()), n.version
		b.mu.Unlock()
		switch {
		case owns && token != 0 && token != n.token:
			err := s.sync(ctx, s.mutexes())
			if err == nil {
				err = b.reload(ctx, n)
			}
			if err == nil && !b.changed(n, version) {
				return n, nil
			}
			if ignoreNoNode(err) != nil {
				return nil, err
			}
			continue
		case owns:
			return n, nil
		case owner && n.foreign: // the creator deletes it, unless another server renewed
			if err := b.reload(ctx, n); err != nil {
				return nil, ignoreNoNode(err)
			}
			if b.changed(n, version) {
				continue
			}
			if err := b.markOver(ctx, n); !errors.Is(err, zk.ErrBadVersion) {
				return nil, ignoreNoNode(err)
			}
			continue
		case owner:
			if err := b.expire(ctx, n); err != nil {
				return nil, err
			}
			continue
		}
		// The contender waits, unless it has become the owner through another server.
		if err := b.reload(ctx, n); err != nil {
			if ignoreNoNode(err) == nil {
				continue
			}
			return nil, err
		}
		if b.changed(n, version) {
			continue
		}
		b.mu.Lock()
		undecided := n.foreign && n.undecidedLocked()
		if undecided { // the creator has yet to write the outcome: read the node anew
			b.dropLocked(n)
		}
		b.mu.Unlock()
		if !undecided {
			return nil, nil
		}
	}
}

func (b *Backend) changed(n *node, version int32) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return n.version != version
}

// locate finds a contender's node in the ensemble; nil = it has none. first reports whether that
// node is the first.
func (b *Backend) locate(ctx context.Context, s *session, k nodeKey) (n *node, first bool, err error) {
	if err := s.sync(ctx, s.mutexes()); err != nil {
		return nil, false, err
	}
	names, err := s.children(ctx, k.mutex)
	if err != nil {
		return nil, false, err
	}
	if own := b.nodeAt(k); own != nil && own.s == s {
		return own, slices.Index(names, own.child) == 0, nil
	}
	n, err = b.olderNode(ctx, s, k, names)
	if n == nil || err != nil {
		return nil, false, err
	}
	return n, names[0] == n.child, nil
}

// binding encodes a session of this server for the record of a lease that is bound to it; 0 = "".
func (b *Backend) binding(session uint64) string {
	if session == 0 {
		return ""
	}
	return b.id + ":" + strconv.FormatUint(session, 10)
}

// boundSession returns the session in a binding, or 0 if it is not one of this server.
func (b *Backend) boundSession(binding string) uint64 {
	text, _ := strings.CutPrefix(binding, b.id+":")
	session, _ := strconv.ParseUint(text, 10, 64) // fails for another server's
	return session
}
