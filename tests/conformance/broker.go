package conformance

import (
	"sync"

	"github.com/simba-resp/simba-resp"
)

// Broker is the simba.Notices of one server. The test sets the subscribers. The Broker records all
// published messages.
type Broker struct {
	mu        sync.Mutex // guards the fields below
	channels  map[string]int
	patterns  map[string]int
	published []notice
}

type notice struct{ channel, payload string }

var _ simba.Notices = (*Broker)(nil)

// NewBroker returns a Broker with a subscriber of each channel.
func NewBroker(channels ...string) *Broker {
	b := &Broker{channels: map[string]int{}, patterns: map[string]int{}}
	for _, channel := range channels {
		b.subscribe(channel)
	}
	return b
}

func (b *Broker) subscribe(channel string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.channels[channel]++
}

func (b *Broker) unsubscribe(channel string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.channels, channel)
}

func (b *Broker) psubscribe(pattern string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patterns[pattern]++
}

// Publish implements simba.Notices.
func (b *Broker) Publish(channel, payload string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published = append(b.published, notice{channel, payload})
	return b.channels[channel]
}

// Subscribed implements simba.Notices.
func (b *Broker) Subscribed(channel string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.channels[channel] > 0
}

// SubscribedPattern implements simba.Notices.
func (b *Broker) SubscribedPattern(pattern string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.patterns[pattern] > 0
}

// Any implements simba.Notices.
func (b *Broker) Any() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.channels)+len(b.patterns) > 0
}

func (b *Broker) publishedOn(channel string) (payloads []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.published {
		if n.channel == channel {
			payloads = append(payloads, n.payload)
		}
	}
	return payloads
}

// Count returns how often a payload was published on a channel.
func (b *Broker) Count(channel, payload string) (times int) {
	for _, p := range b.publishedOn(channel) {
		if p == payload {
			times++
		}
	}
	return times
}
