package backendtest

import (
	"slices"
	"sync"

	"github.com/simba-resp/simba-resp"
)

// broker is the simba.Notices of one server. The test sets the subscribers. The broker records all
// published messages.
type broker struct {
	mu        sync.Mutex // guards the fields below
	channels  map[string]int
	patterns  map[string]int
	published []notice
	changed   chan struct{} // closed at the next notice
}

type notice struct{ channel, payload string }

var _ simba.Notices = (*broker)(nil)

func newBroker() *broker {
	return &broker{channels: map[string]int{}, patterns: map[string]int{}, changed: make(chan struct{})}
}

func (b *broker) subscribe(channel string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.channels[channel]++
}

func (b *broker) unsubscribe(channel string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.channels, channel)
}

func (b *broker) psubscribe(pattern string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.patterns[pattern]++
}

// Publish implements simba.Notices.
func (b *broker) Publish(channel, payload string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published = append(b.published, notice{channel, payload})
	close(b.changed)
	b.changed = make(chan struct{})
	return b.channels[channel]
}

// Subscribed implements simba.Notices.
func (b *broker) Subscribed(channel string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.channels[channel] > 0
}

// SubscribedPattern implements simba.Notices.
func (b *broker) SubscribedPattern(pattern string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.patterns[pattern] > 0
}

// Any implements simba.Notices.
func (b *broker) Any() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.channels)+len(b.patterns) > 0
}

// payloadsOn returns the payloads on a channel so far, and a Go channel that is closed at the next
// notice on any channel.
func (b *broker) payloadsOn(channel string) (payloads []string, more <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.published {
		if n.channel == channel {
			payloads = append(payloads, n.payload)
		}
	}
	return payloads, b.changed
}

func (b *broker) publishedOn(channel string) []string {
	payloads, _ := b.payloadsOn(channel)
	return slices.Clone(payloads)
}
