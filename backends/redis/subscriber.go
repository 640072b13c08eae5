package redis

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// subscriber is the pub/sub connection to one node. If the connection breaks, it reconnects and
// subscribes again. It has its own read loop, since that of go-redis drops messages that arrive
// fast, and does not report a reconnect. Safe for concurrent use.
type subscriber struct {
	client  *redis.Client
	timeout time.Duration // a node that sends nothing for so long counts as dead

	onMessage   func(m *redis.Message)
	onConfirmed func(channel string) // called when the node has confirmed a subscription
	// onResubscribed is called when the node has answered all subscriptions that were wanted when a
	// connection was made. After that, it is called when the node confirms a channel on which
	// messages may have been lost. Such a channel has moved here from another node, or the node had
	// refused it before.
	onResubscribed func()
	// serverChannel is the name of this simba-resp server's own channel. Each connection also
	// subscribes to a probe channel (see subscriber_probe.go), whose name begins with
	// serverChannel.
	serverChannel string
	// renotification numbers the latest call of subscriptions.renotify; guarded by
	// subscriptions.mu.
	renotification uint64

	mu            sync.Mutex // guards the fields below
	channels      map[string]*subscription
	toSubscribe   []string
	toUnsubscribe []string
	awaited       int                     // initial subscriptions that the node has not answered
	lastErr       error                   // why a connection ended, or a subscription was refused
	unanswered    []subscribeCommand      // SUBSCRIBE and PSUBSCRIBE commands, in order
	oneByOne      bool                    // after a refusal: send one command for each channel
	refused       []string                // tried again later, because rights may change
	connects      int                     // connections so far
	probe         string                  // this connection's probe channel, once confirmed
	disconnect    context.CancelCauseFunc // ends this connection; nil = there is none

	changes chan struct{} // capacity 1: signals new elements of toSubscribe or toUnsubscribe
	stop    context.CancelFunc
}

// subscription is a channel, or a glob of channels, that the server wants to receive.
type subscription struct {
	pattern     bool
	initial     bool          // wanted when the connection was made; the node has not answered yet
	confirmed   chan struct{} // closed when the node has confirmed it
	isConfirmed bool
	wantedAt    time.Time // the last call of subscribe
	// interruptions counts how often messages may have been lost. The server has caught up with the
	// first caughtUp interruptions.
	interruptions, caughtUp int
}

// subscribeCommand is a command that subscribes to channels. The node confirms each channel, or
// refuses them all.
type subscribeCommand struct {
	names       []string
	unconfirmed int
}

func newSubscriber(client *redis.Client, timeout time.Duration) *subscriber {
	return &subscriber{
		client: client, timeout: timeout,
		channels: make(map[string]*subscription), changes: make(chan struct{}, 1),
	}
}

// subscribe subscribes to a channel, unless it is subscribed already. The returned Go channel
// closes when the node has confirmed the subscription. If the connection ends after that, later
// calls return a new Go channel.
func (s *subscriber) subscribe(name string, pattern bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.channels[name]
	if sub == nil {
		sub = &subscription{pattern: pattern, confirmed: make(chan struct{})}
		s.channels[name] = sub
		s.toSubscribe = append(s.toSubscribe, name)
		s.signal()
	}
	sub.wantedAt = time.Now()
	return sub.confirmed
}

func (s *subscriber) unsubscribe(name string) {
	resubscribed := false
	s.mu.Lock()
	if sub := s.channels[name]; sub != nil {
		resubscribed = s.removeLocked(name, sub)
	}
	s.mu.Unlock()
	if resubscribed {
		s.onResubscribed()
	}
}

// sweep unsubscribes from the channels that were last wanted before an instant and for which keep
// returns false.
func (s *subscriber) sweep(before time.Time, keep func(name string, pattern bool) bool) {
	resubscribed := false
	s.mu.Lock()
	for name, sub := range s.channels {
		if sub.wantedAt.Before(before) && !keep(name, sub.pattern) {
			resubscribed = s.removeLocked(name, sub) || resubscribed
		}
	}
	s.mu.Unlock()
	if resubscribed {
		s.onResubscribed()
	}
}

// removeLocked unsubscribes from a channel. If resubscribed is true, the caller must unlock mu and
// call onResubscribed: see answeredLocked.
func (s *subscriber) removeLocked(name string, sub *subscription) (resubscribed bool) {
	delete(s.channels, name)
	s.toUnsubscribe = append(s.toUnsubscribe, name)
	s.signal()
	return s.answeredLocked(sub)
}

// answeredLocked notes that the subscriber no longer awaits an answer to sub. resubscribed reports
// whether sub was the last initial subscription without an answer.
func (s *subscriber) answeredLocked(sub *subscription) (resubscribed bool) {
	if !sub.initial {
		return false
	}
	sub.initial = false
	s.awaited--
	return s.awaited == 0
}

func (s *subscriber) signal() {
	select {
	case s.changes <- struct{}{}:
	default:
	}
}

func (s *subscriber) wants(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channels[name] != nil
}

func (s *subscriber) confirmed(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.channels[name]
	return sub != nil && sub.isConfirmed
}

func (s *subscriber) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.channels))
}

// err returns the error that ended the last connection, or with which the node has refused a
// subscription since. It returns nil if there is no such error.
func (s *subscriber) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}

func (s *subscriber) markInterrupted(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.channels[name]; sub != nil {
		sub.interruptions++
	}
}

// interrupted returns the confirmed channels for which the server has yet to catch up, with their
// counts of interruptions.
func (s *subscriber) interrupted() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make(map[string]int)
	for name, sub := range s.channels {
		if sub.isConfirmed && sub.interruptions != sub.caughtUp {
			list[name] = sub.interruptions
		}
	}
	return list
}

// markCaughtUp notes that the server has caught up with the first n interruptions of a channel.
func (s *subscriber) markCaughtUp(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.channels[name]; sub != nil {
		sub.caughtUp = n
	}
}
