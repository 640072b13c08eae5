package resp

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Kind is a kind of subscription. Each kind has its own namespace.
type Kind uint8

// The kinds.
const (
	KindChannel Kind = iota // SUBSCRIBE
	KindPattern             // PSUBSCRIBE: a glob that channels match
	KindShard               // SSUBSCRIBE: a shard channel, as in Redis Cluster

	kinds = 3
)

// Broker delivers messages to subscribed connections. Messages of one publisher arrive in order.
// All methods are safe for concurrent use. No method waits for a connection, or holds a lock while
// it matches globs.
type Broker struct {
	mu     sync.RWMutex // protects topics, their connections and subscriptions.topics
	topics [kinds]map[string]*topic

	// patterns is an immutable index of topics[KindPattern]; nil = not built. A goroutine that
	// stores patterns holds mu.
	patterns atomic.Pointer[patternIndex]

	clients atomic.Int64 // number of connections with a subscription
}

// topic is a channel, a pattern or a shard channel with subscribers.
type topic struct {
	name  string
	conns map[*Conn]struct{}
}

// NewBroker returns a broker without subscribers.
func NewBroker() *Broker {
	b := &Broker{}
	for kind := range b.topics {
		b.topics[kind] = make(map[string]*topic)
	}
	return b
}

// Publish queues a message for the subscribers of the channel and of each matching pattern. It
// returns the number of matching subscriptions. A connection receives the message once for each of
// its matching subscriptions.
func (b *Broker) Publish(channel, payload string) (receivers int) {
	exact, matched := b.publish(KindChannel, channel, payload)
	return exact + matched
}

// PublishCountExact is Publish, but it counts only the subscribers of the channel itself.
func (b *Broker) PublishCountExact(channel, payload string) (subscribers int) {
	exact, _ := b.publish(KindChannel, channel, payload)
	return exact
}

// PublishShard queues a message for the subscribers of a shard channel and returns their number.
func (b *Broker) PublishShard(channel, payload string) (receivers int) {
	exact, _ := b.publish(KindShard, channel, payload)
	return exact
}

func (b *Broker) publish(kind Kind, channel, payload string) (exact, matched int) {
	if !b.Any() {
		return 0, 0
	}
	var slow []*Conn
	b.mu.RLock()
	if t := b.topics[kind][channel]; t != nil {
		exact = t.send(&publication{kind: kind, channel: channel, payload: payload}, &slow)
	}
	patterns := noPatterns
	if kind == KindChannel {
		patterns = b.patternsLocked()
	}
	b.mu.RUnlock()
	for t := range patterns.matches(channel) {
		p := &publication{kind: KindPattern, pattern: t.name, channel: channel, payload: payload}
		b.mu.RLock()
		matched += t.send(p, &slow)
		b.mu.RUnlock()
	}
	cutAll(slow)
	return exact, matched
}

// patternsLocked returns the index of patterns. It builds the index if the patterns have changed.
// The caller holds mu, at least for reading. It may use the index after it has released mu.
func (b *Broker) patternsLocked() *patternIndex {
	index := b.patterns.Load()
	if index == nil {
		index = newPatternIndex(maps.Values(b.topics[KindPattern]))
		b.patterns.Store(index)
	}
	return index
}

// send queues p for every subscriber. If the queue of a connection overflowed, send appends the
// connection to slow. The caller must release its locks and then call cutAll(slow).
func (t *topic) send(p *publication, slow *[]*Conn) (receivers int) {
	for c := range t.conns {
		switch c.enqueue(p, t) {
		case pushQueued:
			receivers++
		case pushOverflew:
			*slow = append(*slow, c)
		}
	}
	return receivers
}

func cutAll(slow []*Conn) {
	for _, c := range slow {
		c.cutSlow()
	}
}

// Any reports whether there is a subscription. It costs one atomic load.
func (b *Broker) Any() bool { return b.clients.Load() > 0 }

// Subscribers returns how many connections subscribe to exactly that name.
func (b *Broker) Subscribers(kind Kind, name string) int {
	if !b.Any() {
		return 0
	}
	b.mu.RLock()
	defer b.mu.RUnlock()
	if t := b.topics[kind][name]; t != nil {
		return len(t.conns)
	}
	return 0
}

// Channels returns the names of a kind that have a subscriber and match a glob, sorted. The glob ""
// stands for all names.
func (b *Broker) Channels(kind Kind, glob string) []string {
	b.mu.RLock()
	names := slices.Collect(maps.Keys(b.topics[kind]))
	b.mu.RUnlock()
	if glob != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return !Match(glob, name) })
	}
	slices.Sort(names)
	return names
}

// PatternCount returns the number of different patterns that have a subscriber.
func (b *Broker) PatternCount() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.topics[KindPattern])
}

func (b *Broker) subscribe(c *Conn, kind Kind, name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.topics[kind][name] != nil {
		return false
	}
	t := b.topics[kind][name]
	if t == nil {
		t = &topic{name: name, conns: make(map[*Conn]struct{})}
		b.topics[kind][name] = t
		b.patternsChanged(kind)
	}
	t.conns[c] = struct{}{}
	if c.topics[kind] == nil {
		c.topics[kind] = make(map[string]*topic)
	}
	c.topics[kind][name] = t
	b.count(c, kind, 1)
	return true
}

// unsubscribe removes a subscription and returns its topic, nil if there was none.
func (b *Broker) unsubscribe(c *Conn, kind Kind, name string) *topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := c.topics[kind][name]
	if t != nil {
		b.remove(c, kind, t)
	}
	return t
}

func (b *Broker) removeConn(c *Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for kind := range Kind(kinds) {
		for _, t := range c.topics[kind] {
			b.remove(c, kind, t)
		}
	}
}

func (b *Broker) remove(c *Conn, kind Kind, t *topic) {
	delete(c.topics[kind], t.name)
	delete(t.conns, c)
	if len(t.conns) == 0 {
		delete(b.topics[kind], t.name)
		b.patternsChanged(kind)
	}
	b.count(c, kind, -1)
}

func (b *Broker) patternsChanged(kind Kind) {
	if kind == KindPattern {
		b.patterns.Store(nil)
	}
}

// count updates the counters that other goroutines read without mu.
func (b *Broker) count(c *Conn, kind Kind, by int32) {
	before := c.SubscriptionCount()
	c.counts[kind].Add(by)
	switch after := c.SubscriptionCount(); {
	case before == 0:
		b.clients.Add(1)
	case after == 0:
		b.clients.Add(-1)
	}
}

func (b *Broker) names(c *Conn, kind Kind) []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.topics[kind]))
}
