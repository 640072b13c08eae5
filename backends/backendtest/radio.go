package backendtest

import (
	"slices"
	"sync"

	"github.com/simba-resp/simba-resp"
)

// radio is the broker of one server: a simba.Notices whose subscribers are set by
// hand, and which remembers all that was published.
type radio struct {
	mu       sync.Mutex // guards what follows
	channels map[string]int
	patterns map[string]int
	heard    []notice
	changed  chan struct{} // closed at the next notice
}

type notice struct{ channel, payload string }

var _ simba.Notices = (*radio)(nil)

func newRadio() *radio {
	return &radio{channels: map[string]int{}, patterns: map[string]int{}, changed: make(chan struct{})}
}

func (r *radio) subscribe(channel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.channels[channel]++
}

func (r *radio) unsubscribe(channel string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.channels, channel)
}

func (r *radio) psubscribe(pattern string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.patterns[pattern]++
}

// Publish implements simba.Notices.
func (r *radio) Publish(channel, payload string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heard = append(r.heard, notice{channel, payload})
	close(r.changed)
	r.changed = make(chan struct{})
	return r.channels[channel]
}

// Subscribed implements simba.Notices.
func (r *radio) Subscribed(channel string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.channels[channel] > 0
}

// SubscribedPattern implements simba.Notices.
func (r *radio) SubscribedPattern(pattern string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.patterns[pattern] > 0
}

// Any implements simba.Notices.
func (r *radio) Any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.channels)+len(r.patterns) > 0
}

// told returns what was published on a channel so far, and a channel that is closed
// when there is more.
func (r *radio) told(channel string) (payloads []string, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.heard {
		if n.channel == channel {
			payloads = append(payloads, n.payload)
		}
	}
	return payloads, r.changed
}

// heardOn returns the payloads on a channel so far.
func (r *radio) heardOn(channel string) []string {
	payloads, _ := r.told(channel)
	return slices.Clone(payloads)
}
