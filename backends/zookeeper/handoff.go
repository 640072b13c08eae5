package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// handOff wakes a waiter that now owns the mutex. If the waiter is gone, it releases the tenure.
func (b *Backend) handOff(n *node) {
	b.counters.handoffs.Add(1)
	b.announceTenure(n, reasonHandoff)
	if !b.waiters.Grant(n.mutex, n.contender, b.grantOf(n)) {
		b.abandonGrantInBackground(n.key(), n.token)
	}
}

// grantOf returns the tenure of an owner's node.
func (b *Backend) grantOf(n *node) proxy.Grant {
	b.mu.Lock()
	defer b.mu.Unlock()
	return proxy.Grant{Token: n.token, Since: n.since}
}

// grantWaiter begins the tenure of a blocked waiter whose node is the first. It wakes the waiter
// only after a write at the known version, since the contender may have continued through another
// server.
func (b *Backend) grantWaiter(n *node) {
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	err := b.tryGrantWaiter(ctx, n)
	b.mu.Lock()
	n.granting = false
	b.mu.Unlock()
	if err == nil {
		return
	}
	b.failWaits(n.mutex, err)
	if n.s.alive() && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, errChanged) && b.pause(retryPause) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !n.forgotten {
			b.watcherLocked(n.mutex).wake()
		}
		return
	}
	b.rejoin(n.mutex)
}

// tryGrantWaiter makes one attempt of grantWaiter, under the key's lock.
func (b *Backend) tryGrantWaiter(ctx context.Context, n *node) error {
	unlock, err := b.lockKey(ctx, n.key())
	if err != nil {
		return err
	}
	defer unlock()
	b.mu.Lock()
	waits := !n.forgotten && n.kind == kindBlocked && b.waitsLocked(n.key())
	ttl, transition, binding := n.ttl, n.transition, n.binding
	b.mu.Unlock()
	if !waits {
		return nil
	}
	if err := b.renew(ctx, n, ttl, transition, binding); err != nil {
		return err
	}
	b.mu.Lock()
	n.unacknowledged = true
	b.mu.Unlock()
	b.handOff(n)
	return nil
}
