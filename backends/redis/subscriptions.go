package redis

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// subscriptions has one subscriber for each master. In a cluster a message reaches every node, but
// PUBLISH in a script counts only the subscribers at its own node. So the server subscribes to a
// mutex's channels at the node of the mutex, and to its own channel at every node. Safe for
// concurrent use.
type subscriptions struct {
	b       *Backend
	timeout time.Duration // a node that sends nothing for so long counts as dead

	mu          sync.Mutex // guards the fields below
	subscribers map[*redis.Client]*subscriber
	patterns    map[string]struct{} // globs of clients
}

// The globs that match the channels of all mutexes. For a client's glob, the server subscribes to
// these instead, since two globs that overlap would deliver a message twice. contenderGlob overlaps
// noticeGlob, but onMessage handles its messages separately.
const (
	noticeGlob = "simba:{*"
	eventGlob  = "simba-events:{*"
	// contenderGlob matches the channels of all contenders. Simba up to 3.1 publishes a release
	// only on the channel of the next contender, which may be a client of another program. The
	// brackets make the glob differ from the channel of contender '*' of mutex '*'.
	contenderGlob = "simba:{*}[:]*"
)

func isServerGlob(name string) bool {
	return name == noticeGlob || name == eventGlob || name == contenderGlob
}

func newSubscriptions(b *Backend) *subscriptions {
	return &subscriptions{
		b: b, timeout: max(b.timeout, 300*time.Millisecond),
		subscribers: make(map[*redis.Client]*subscriber), patterns: make(map[string]struct{}),
	}
}

// serverChannel is where scripts publish grants to waiters of this server.
func (s *subscriptions) serverChannel() string { return "simba-server:" + s.b.id }

func (s *subscriptions) start(ctx context.Context) error {
	if err := s.followMasters(ctx); err != nil {
		return err
	}
	for _, sub := range s.all() {
		if err := sub.await(ctx, sub.subscribe(s.serverChannel(), false)); err != nil {
			return err
		}
	}
	return nil
}

// maintain follows the masters of a cluster, and regularly unsubscribes from channels that nobody
// needs.
func (s *subscriptions) maintain() {
	for swept := time.Now(); proxy.Sleep(s.b.Stopping, time.Second, nil); {
		if s.b.up.cluster != nil {
			ctx, cancel := context.WithTimeout(s.b.Stopping, s.b.timeout)
			_ = s.followMasters(ctx) // tried again in a second
			cancel()
		}
		if time.Since(swept) >= unsubscribeAfter {
			swept = time.Now()
			s.sweep(swept.Add(-unsubscribeAfter))
		}
	}
}

// waitReachable waits until the node of a mutex has confirmed the subscription to serverChannel.
// From then on, this server receives the grants of this mutex to its waiters. The function
// uninterrupted reports whether this subscription has had no interruption since waitReachable
// returned.
func (s *subscriptions) waitReachable(ctx context.Context, mutex string) (uninterrupted func() bool, err error) {
	for {
		if sub := s.subscriberForKey(ctx, simba.MutexChannel(mutex)); sub != nil {
			confirmed := sub.subscribe(s.serverChannel(), false)
			limited, cancel := context.WithTimeout(ctx, redialPause)
			err = sub.await(limited, confirmed)
			cancel()
			if err == nil {
				return func() bool { return sub.subscribe(s.serverChannel(), false) == confirmed }, nil
			}
		} else if err = s.followMasters(ctx); err != nil { // the master is new
			return nil, err
		} else {
			err = fmt.Errorf("no node is known for mutex %s", mutex)
			proxy.Sleep(ctx, redialPause, nil)
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// reachable reports whether the node of a mutex has confirmed the subscription to serverChannel. If
// not, cause is the last error of the node's subscriber, nil if there is none.
func (s *subscriptions) reachable(mutex string) (ok bool, cause error) {
	sub := s.subscriberForKey(endedContext, simba.MutexChannel(mutex))
	if sub == nil || sub.confirmed(s.serverChannel()) {
		return sub != nil, nil
	}
	return false, sub.err()
}

// subscriberForKey returns the subscriber of the master that has a key, nil if there is none yet.
func (s *subscriptions) subscriberForKey(ctx context.Context, key string) *subscriber {
	c, err := s.b.up.clientFor(ctx, key)
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.subscribers[c]
}

// subscriberForChannel returns the subscriber for a channel, nil if there is none. In a cluster
// this is the subscriber of the channel's slot. For a glob, or a slot without a subscriber, it is
// the subscriber whose address sorts first.
func (s *subscriptions) subscriberForChannel(channel string) *subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.b.up.cluster != nil && !isServerGlob(channel) {
		if c, err := s.b.up.clientFor(endedContext, channel); err == nil && s.subscribers[c] != nil {
			return s.subscribers[c]
		}
	}
	if len(s.subscribers) == 0 {
		return nil
	}
	return slices.MinFunc(slices.Collect(maps.Values(s.subscribers)), func(a, b *subscriber) int {
		return strings.Compare(a.client.Options().Addr, b.client.Options().Addr)
	})
}

func (s *subscriptions) all() []*subscriber {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.subscribers))
}

// followMasters gives each master a subscriber, and moves channels to the subscriber of their slot.
func (s *subscriptions) followMasters(ctx context.Context) error {
	masters, err := s.b.up.masters(ctx)
	if err != nil {
		return err
	}
	var moved []string
	s.mu.Lock()
	for _, c := range masters {
		if s.subscribers[c] == nil {
			s.subscribers[c] = s.startLocked(c)
		}
	}
	for c, sub := range s.subscribers {
		if !slices.Contains(masters, c) {
			sub.stop()
			delete(s.subscribers, c)
			moved = append(moved, sub.names()...)
		}
	}
	s.mu.Unlock()
	s.b.up.retain(masters)
	for _, sub := range s.all() {
		for _, name := range sub.names() {
			if home := s.subscriberForChannel(name); home != sub && !isServerGlob(name) && name != s.serverChannel() {
				moved = append(moved, name)
				sub.unsubscribe(name)
			}
		}
	}
	for _, name := range moved {
		if home := s.subscriberForChannel(name); home != nil && name != s.serverChannel() {
			home.subscribe(name, true)
		}
	}
	return nil
}

// startLocked makes the subscriber of a master and starts its goroutine.
func (s *subscriptions) startLocked(c *redis.Client) *subscriber {
	sub := &subscriber{
		subs: s, client: c, changes: make(chan struct{}, 1), channels: make(map[string]*subscription),
	}
	sub.subscribe(s.serverChannel(), false)
	var ctx context.Context
	ctx, sub.stop = context.WithCancel(s.b.Stopping)
	s.b.Go(func() { sub.run(ctx) })
	return sub
}

// subscribe subscribes to a channel, without waiting for the confirmation.
func (s *subscriptions) subscribe(channel string) (*subscriber, <-chan struct{}) {
	sub := s.subscriberForChannel(channel)
	if sub == nil {
		return nil, nil
	}
	return sub, sub.subscribe(channel, false)
}

// subscribeAndWait subscribes to channels, and waits for the confirmations. For a channel that is
// confirmed already, it calls onConfirmed itself.
func (s *subscriptions) subscribeAndWait(ctx context.Context, channels ...string) error {
	var list []func() error
	for _, c := range channels {
		sub, confirmed := s.subscribe(c)
		if sub == nil {
			return fmt.Errorf("no node is known for channel %s", c)
		}
		if sub.confirmed(c) {
			s.onConfirmed(c, false)
		}
		list = append(list, func() error { return sub.await(ctx, confirmed) })
	}
	for _, await := range list {
		if err := await(); err != nil {
			return err
		}
	}
	return nil
}
