package zookeeper

import (
	"context"
	"maps"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

const reasonSessionLost = "zookeeper session lost"

// forgetNodes forgets the nodes of a session that this server has given up. It returns the keys of
// the polling waiters among them.
func (b *Backend) forgetNodes(l *sessionSlot, s *session) (polling []nodeKey) {
	var events []simba.Event
	b.mu.Lock()
	for name, m := range b.mutexes {
		for _, n := range m.nodes {
			if n.s != s {
				continue
			}
			if n.kind == kindOwner && !n.foreign {
				events = append(events, simba.Event{
					Kind: simba.EventExpired, Mutex: name, Owner: n.contender, Token: n.token, Reason: reasonSessionLost,
				})
			}
			if n.kind == kindPolling && !n.foreign {
				polling = append(polling, n.key())
			}
			b.dropLocked(n)
		}
	}
	maps.DeleteFunc(b.orphans, func(k nodeKey, _ map[guid]int32) bool { return b.slotOf(k.mutex) == l })
	b.mu.Unlock()
	if b.life.Err() != nil {
		return nil
	}
	s.mu.Lock()
	cause := s.cause
	s.mu.Unlock()
	b.log.Warn("lost the session with the ensemble, and with it the leases of this server",
		"leases", len(events), "err", cause)
	b.counters.expired.Add(int64(b.eventLog.Record(events...)))
	return polling
}

// notifyPolling publishes a released notice to polling waiters that lost their queue entries with a
// session. No other notice would make subscribed waiters ask again.
func (b *Backend) notifyPolling(keys []nodeKey) {
	for _, k := range keys {
		if b.nodeAt(k) == nil { // the waiter has not asked again since
			b.notices.Publish(simba.ContenderChannel(k.mutex, k.contender), simba.OfferNotice(b.lastOwner(k), k.contender))
		}
	}
}

func (b *Backend) rejoinAll(l *sessionSlot) {
	for _, mutex := range b.waiters.Mutexes() {
		if b.slotOf(mutex) == l {
			b.rejoin(mutex)
		}
	}
}

// rejoin queues the blocked waiters of a mutex again if they have no node.
func (b *Backend) rejoin(mutex string) {
	b.background(func() {
		for _, t := range b.waiters.Waiting(mutex) {
			if !b.rejoinOne(t) {
				return
			}
		}
	})
}

// rejoinOne queues a ticket's waiter again. It tries until it succeeds or the ticket no longer
// waits. It returns false after Close.
func (b *Backend) rejoinOne(t *proxy.Ticket) bool {
	r := t.Request
	for b.waiters.Find(r.Mutex, r.Contender) == t {
		err := b.tryRejoin(t)
		if err == nil {
			return true
		}
		b.failWaits(r.Mutex, err)
		if !b.pause(retryPause) {
			return false
		}
	}
	return true
}

// tryRejoin creates a new node for a ticket. It first waits for the waiter's own request, which may
// be creating one. It does nothing if the ticket no longer waits.
func (b *Backend) tryRejoin(t *proxy.Ticket) error {
	r := t.Request
	k := nodeKey{r.Mutex, r.Contender}
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	unlock, err := b.lockKey(ctx, k)
	if err != nil {
		return err
	}
	defer unlock()
	if b.waiters.Find(r.Mutex, r.Contender) != t {
		return nil
	}
	out, err := b.acquireWithLock(ctx, r, t)
	if err != nil || out.Status == simba.StatusWaiting {
		return err
	}
	if !b.waiters.Grant(r.Mutex, r.Contender, proxy.Grant{Token: out.Token, Since: time.Now()}) {
		b.abandonGrantInBackground(k, out.Token) // the waiter is gone
	}
	return nil
}
