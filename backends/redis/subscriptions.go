package redis

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// tuner is the server's ear at the masters: a radio each. In a cluster a message
// reaches every node, but PUBLISH in a script counts those who listen at its own: so
// channels of a mutex are listened to where the mutex lives, and the server's own
// everywhere. Safe for concurrent use.
type subscriptions struct {
	b     *Backend
	alive time.Duration

	mu          sync.Mutex // guards what follows, and each radio's renotifying
	subscribers map[*redis.Client]*subscriber
	patterns    map[string]time.Time // of clients, and when last subscribed to
}

// The globs that the channels of all mutexes match. Clients' own globs are judged
// here, not by Redis: two that overlap would bring a message twice.
const (
	noticeGlob = "simba:{*"
	eventGlob  = "simba-events:{*"
	// contenderGlob is for this server alone: the channels of all contenders. Simba up to 3.1
	// tells of a release on that of the next contender only, who may be no client of this server.
	// No channel has this name: the colon stands in brackets.
	contenderGlob = "simba:{*}[:]*"
)

func isPattern(name string) bool {
	return name == noticeGlob || name == eventGlob || name == contenderGlob
}

func newSubscriptions(b *Backend) *subscriptions {
	return &subscriptions{
		b: b, alive: max(b.timeout, 300*time.Millisecond),
		subscribers: make(map[*redis.Client]*subscriber), patterns: make(map[string]time.Time),
	}
}

func (t *subscriptions) serverChannel() string { return "simba-server:" + t.b.id }

// begin connects the radios and waits until they hear what concerns this server.
func (t *subscriptions) begin(ctx context.Context) error {
	if err := t.followMasters(ctx); err != nil {
		return err
	}
	for _, r := range t.all() {
		if err := await(ctx, r, r.subscribe(t.serverChannel(), false), 0); err != nil {
			return err
		}
	}
	if t.b.up.cluster != nil {
		t.b.tasks.start(func() {
			for t.b.tasks.ctx.Err() == nil {
				wait(t.b.tasks.ctx, time.Second)
				ctx, cancel := context.WithTimeout(t.b.tasks.ctx, t.b.timeout)
				_ = t.followMasters(ctx) // the next time, then
				cancel()
			}
		})
	}
	return nil
}

// attentive waits until the node of a mutex is known to pass on what others grant to
// waiters here. What it returns reports whether it has done so all the time since.
func (t *subscriptions) waitReachable(ctx context.Context, mutex string) (since func() bool, err error) {
	err = fmt.Errorf("no node is known for mutex %s", mutex)
	for {
		r := t.subscriberOf(ctx, simba.MutexChannel(mutex))
		if r != nil {
			on := r.subscribe(t.serverChannel(), false)
			if err = await(ctx, r, on, redialPause); err == nil {
				return func() bool { return r.subscribe(t.serverChannel(), false) == on && r.confirmed(t.serverChannel()) }, nil
			}
		} else if err := t.followMasters(ctx); err != nil { // a master that is new
			return nil, err
		} else {
			wait(ctx, redialPause)
		}
		if ctx.Err() != nil {
			return nil, err
		}
	}
}

// hears reports whether the node of a mutex passes on what others grant to waiters here.
func (t *subscriptions) hears(mutex string) bool {
	r := t.subscriberOf(endedContext, simba.MutexChannel(mutex))
	return r != nil && r.confirmed(t.serverChannel())
}

// radioOf is the radio of the master that has a key, nil if it has none yet.
func (t *subscriptions) subscriberOf(ctx context.Context, key string) *subscriber {
	c, err := t.b.up.of(ctx, key)
	if err != nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.subscribers[c]
}

// await waits for a confirmation until ctx ends, or for some time (0 = as long as ctx).
func await(ctx context.Context, r *subscriber, on <-chan struct{}, some time.Duration) error {
	select {
	case <-on: // mostly
		return nil
	default:
	}
	if some > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, some)
		defer cancel()
	}
	select {
	case <-on:
		return nil
	case <-ctx.Done():
		if err := r.reason(); err != nil {
			return err
		}
		return fmt.Errorf("no confirmation of a subscription: %w", ctx.Err())
	}
}

func (t *subscriptions) all() []*subscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]*subscriber, 0, len(t.subscribers))
	for _, r := range t.subscribers {
		list = append(list, r)
	}
	return list
}

// followMasters gives each master a radio, and moves channels to where they belong.
func (t *subscriptions) followMasters(ctx context.Context) error {
	masters, err := t.b.up.masters(ctx)
	if err != nil {
		return err
	}
	var moved []string
	t.mu.Lock()
	for _, c := range masters {
		if t.subscribers[c] == nil {
			t.subscribers[c] = t.startLocked(c)
		}
	}
	for c, r := range t.subscribers {
		if !slices.Contains(masters, c) {
			r.stop()
			delete(t.subscribers, c)
			moved = append(moved, r.names()...)
		}
	}
	t.mu.Unlock()
	t.b.up.retain(masters)
	if t.b.up.cluster == nil {
		return nil
	}
	for _, r := range t.all() {
		for _, name := range r.names() {
			if home := t.subscriberFor(name); home != nil && home != r && !isPattern(name) && name != t.serverChannel() {
				moved = append(moved, name)
				r.unsubscribe(name)
			}
		}
	}
	for _, name := range moved {
		if name == t.serverChannel() {
			continue
		}
		if r, _ := t.subscribe(name); r != nil {
			r.markInterrupted(name)
		}
	}
	return nil
}

func (t *subscriptions) startLocked(c *redis.Client) *subscriber {
	r := newSubscriber(c, t.alive)
	r.heard, r.tuned, r.begun, r.server = t.heard, t.tuned, t.begun, t.serverChannel()
	r.subscribe(t.serverChannel(), false)
	var ctx context.Context
	ctx, r.stop = context.WithCancel(t.b.tasks.ctx)
	t.b.tasks.start(func() { r.run(ctx) })
	t.b.tasks.start(func() {
		r.watch(ctx, func(ctx context.Context, channel string) (listeners any, err error) {
			return t.b.up.eval(ctx, c, subscriberCountLua, channel)
		})
	})
	return r
}

// close ends the radios' connections. Their goroutines end by the tasks.
func (t *subscriptions) close() {
	for _, r := range t.all() {
		r.stop()
	}
}

// home is the radio of the node that has a channel's slot, nil if none is known.
func (t *subscriptions) subscriberFor(channel string) *subscriber {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.b.up.cluster != nil && !isPattern(channel) {
		if c, err := t.b.up.of(endedContext, channel); err == nil && t.subscribers[c] != nil {
			return t.subscribers[c]
		}
	}
	var first *subscriber
	for _, r := range t.subscribers {
		if first == nil || r.client.Options().Addr < first.client.Options().Addr {
			first = r
		}
	}
	return first
}

// want listens to a channel, without waiting for it.
func (t *subscriptions) subscribe(channel string) (*subscriber, <-chan struct{}) {
	r := t.subscriberFor(channel)
	if r == nil {
		return nil, nil
	}
	return r, r.subscribe(channel, isPattern(channel))
}

// overhear listens to what tells of a release of a mutex by any program, since someone waits or
// listens here. It does not wait: what is missed until then is found by a look (tuned).
func (t *subscriptions) subscribeReleases(mutex string) {
	t.subscribe(simba.MutexChannel(mutex))
	t.subscribe(contenderGlob)
}

// listen listens to channels and waits for the nodes' confirmation.
func (t *subscriptions) listen(ctx context.Context, channels ...string) error {
	type pending struct {
		r  *subscriber
		on <-chan struct{}
	}
	var list []pending
	for _, c := range channels {
		r, on := t.subscribe(c)
		if r == nil {
			return fmt.Errorf("no node is known for channel %s", c)
		}
		list = append(list, pending{r, on})
	}
	for _, p := range list {
		if err := await(ctx, p.r, p.on, 0); err != nil {
			return err
		}
	}
	return nil
}
