package resp

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// Kind is a kind of subscription; each has names of its own.
type Kind uint8

// The kinds.
const (
	Channel Kind = iota // SUBSCRIBE
	Pattern             // PSUBSCRIBE: a glob that channels match
	Shard               // SSUBSCRIBE

	kinds = 3
)

// Broker brings messages to the connections that subscribed to them. Messages of
// one publisher arrive in their order. All methods may be called concurrently; none
// waits for a connection, nor for a glob that another one matches: no lock is held
// meanwhile.
type Broker struct {
	mu     sync.RWMutex // protects topics, their connections and Conn.topics
	topics [kinds]map[string]*topic

	// patterns finds those of topics[Pattern], and never changes; nil: it has yet to
	// be made. It is set under mu, to nil under its write lock.
	patterns atomic.Pointer[patternIndex]

	total   atomic.Int64 // subscriptions
	clients atomic.Int64 // connections that have one
}

// topic is a channel, a pattern or a shard channel that has subscribers.
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

// Publish sends a message to the subscribers of the channel and of each pattern
// that it matches, and returns how many it was queued for. A connection that
// subscribed in several ways gets it as often, and counts as often.
func (b *Broker) Publish(channel, payload string) (receivers int) {
	exact, matched := b.publish(channel, payload)
	return exact + matched
}

// Notify is Publish that counts only the subscribers of exactly that channel.
func (b *Broker) Notify(channel, payload string) (subscribers int) {
	exact, _ := b.publish(channel, payload)
	return exact
}

func (b *Broker) publish(channel, payload string) (exact, matched int) {
	if !b.Any() {
		return 0, 0
	}
	var slow []*Conn
	b.mu.RLock()
	if t := b.topics[Channel][channel]; t != nil {
		exact = t.send(&publication{kind: Channel, channel: channel, payload: payload}, &slow)
	}
	patterns := b.patternsLocked()
	b.mu.RUnlock()
	for t := range patterns.matches(channel) {
		p := &publication{kind: Pattern, pattern: t.name, channel: channel, payload: payload}
		b.mu.RLock()
		matched += t.send(p, &slow)
		b.mu.RUnlock()
	}
	cutAll(slow)
	return exact, matched
}

// patternsLocked returns the patterns, to match when mu is no longer held. The
// first publisher after a change makes the index, so that a client which subscribes
// to thousands of patterns does not make thousands of them. The caller holds mu,
// for reading at least.
func (b *Broker) patternsLocked() *patternIndex {
	index := b.patterns.Load()
	if index == nil {
		index = newPatternIndex(maps.Values(b.topics[Pattern]))
		b.patterns.Store(index)
	}
	return index
}

// PublishShard sends a message to the subscribers of a shard channel and returns
// how many it was queued for.
func (b *Broker) PublishShard(channel, payload string) (receivers int) {
	if !b.Any() {
		return 0
	}
	var slow []*Conn
	b.mu.RLock()
	if t := b.topics[Shard][channel]; t != nil {
		receivers = t.send(&publication{kind: Shard, channel: channel, payload: payload}, &slow)
	}
	b.mu.RUnlock()
	cutAll(slow)
	return receivers
}

// send queues p for every subscriber and adds those that overflowed to slow, to be
// cut when no lock is held.
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

// Any reports whether there is any subscription at all. It is one atomic load.
func (b *Broker) Any() bool { return b.total.Load() > 0 }

// Subscribers is how many connections subscribe to exactly that name.
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

// Channels lists the names with a subscriber that match a glob, sorted; "" is all.
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

// Patterns is how many different patterns have a subscriber.
func (b *Broker) Patterns() int {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return len(b.topics[Pattern])
}

// join adds a subscription and reports whether it is new.
func (b *Broker) join(c *Conn, kind Kind, name string) bool {
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

// part removes a subscription and returns its topic, nil if there was none.
func (b *Broker) part(c *Conn, kind Kind, name string) *topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := c.topics[kind][name]
	if t != nil {
		b.remove(c, kind, t)
	}
	return t
}

// leave removes all subscriptions of a connection.
func (b *Broker) leave(c *Conn) {
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

// patternsChanged makes the next publisher list the patterns anew.
func (b *Broker) patternsChanged(kind Kind) {
	if kind == Pattern {
		b.patterns.Store(nil)
	}
}

// count keeps the figures that are read without the lock.
func (b *Broker) count(c *Conn, kind Kind, by int32) {
	before := c.SubscriptionCount()
	c.subscriptions[kind].Add(by)
	b.total.Add(int64(by))
	switch after := c.SubscriptionCount(); {
	case before == 0:
		b.clients.Add(1)
	case after == 0:
		b.clients.Add(-1)
	}
}

// names lists a connection's subscriptions, sorted.
func (b *Broker) names(c *Conn, kind Kind) []string {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.topics[kind]))
}
