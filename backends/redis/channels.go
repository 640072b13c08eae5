package redis

import (
	"context"
	"maps"
	"time"

	"github.com/simba-resp/simba-resp"
)

// unsubscribeAfter is how long a channel stays subscribed after it was last wanted.
const unsubscribeAfter = 10 * time.Second

// Subscribed implements simba.Backend.
func (b *Backend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	if b.Stopped() {
		return 0, simba.ErrStopped
	}
	mutex, contender, ok := simba.ParseChannel(channel)
	mutexes, events := simba.MayMatchChannels(channel)
	var channels []string
	switch {
	case pattern && (mutexes || events):
		b.subs.addPattern(channel)
		channels = []string{noticeGlob, eventGlob}
	case !pattern && ok:
		// Releases, and tenures that begin without our scripts, are announced on the mutex's channel
		// only.
		channels = []string{channel, simba.MutexChannel(mutex)}
	default:
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	if err := b.subs.subscribeAndWait(ctx, channels...); err != nil {
		return 0, b.requestError(err)
	}
	b.subs.subscribe(contenderGlob)
	if !pattern && contender != "" {
		_, err := b.runReconcile(ctx, mutex, contender, nil) // repeats the notice of a reservation
		return 0, err
	}
	return 0, nil
}

func (s *subscriptions) addPattern(glob string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patterns[glob] = struct{}{}
}

// hasSubscriber reports whether a client of this server may subscribe to the notices or events of a
// mutex. If any client subscribes to a glob of such channels, hasSubscriber returns true for every
// mutex.
func (s *subscriptions) hasSubscriber(mutex string) bool {
	s.mu.Lock()
	hasPatterns := len(s.patterns) > 0
	s.mu.Unlock()
	return hasPatterns || s.b.Notices.Subscribed(simba.MutexChannel(mutex)) || s.b.Notices.Subscribed(simba.EventChannel(mutex))
}

// onConfirmed reads the state of the mutexes that a channel concerns, after a node has confirmed
// the subscription to the channel, or after a client has subscribed to it. Earlier messages have not
// reached the server or the client, and other servers may have removed the waiters' queue entries.
// See subscription.again.
func (s *subscriptions) onConfirmed(channel string, again bool) {
	b := s.b
	switch mutex, contender, ok := simba.ParseChannel(channel); {
	case channel == s.serverChannel():
		b.Checks.Again() // the connection may be new, and lead to another node
		fallthrough
	case channel == contenderGlob:
		b.schedule.bringForward(time.Now(), b.Waiters.Mutexes()...)
	case ok && contender != "" && again: // else Subscribed repeats the notice
		b.addChore(mutex, chore{contender: contender}, 0)
	case ok && contender == "":
		b.schedule.bringForward(time.Now(), mutex)
	}
}

// catchUp reconciles all mutexes that concern this server. While the checks refuse Redis, no script
// hands a mutex off, so catchUp runs after the repair.
func (s *subscriptions) catchUp() {
	for _, sub := range s.all() {
		for _, name := range sub.names() {
			s.onConfirmed(name, true)
		}
	}
}

// sweep unsubscribes from channels that were last wanted before an instant, unless a waiter or a
// client of this server needs a channel of the same mutex.
func (s *subscriptions) sweep(before time.Time) {
	needed := make(map[string]bool) // mutexes
	for _, m := range s.b.Waiters.Mutexes() {
		needed[m] = true
	}
	for _, sub := range s.all() {
		for _, name := range sub.names() {
			if m, _, ok := simba.ParseChannel(name); ok && s.b.Notices.Subscribed(name) {
				needed[m] = true
			}
		}
	}
	s.mu.Lock()
	maps.DeleteFunc(s.patterns, func(glob string, _ struct{}) bool { return !s.b.Notices.SubscribedPattern(glob) })
	patterns := len(s.patterns) > 0
	s.mu.Unlock()
	for _, sub := range s.all() {
		sub.sweep(before, func(name string) bool {
			m, contender, ok := simba.ParseChannel(name)
			wanted := ok && (contender == "" && needed[m] || s.b.Notices.Subscribed(name))
			return name == s.serverChannel() || wanted || isServerGlob(name) && patterns || name == contenderGlob && len(needed) > 0
		})
	}
}
