package redis

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// onConfirmed handles a node's confirmation of a subscription. If the channel concerns mutexes that
// have waiters here, it reconciles these mutexes. Messages before the confirmation have not reached
// this server, and other servers may have removed the waiters' queue entries.
func (s *subscriptions) onConfirmed(channel string) {
	if channel == s.serverChannel() || channel == contenderGlob {
		for _, m := range s.b.waiters.Mutexes() {
			s.b.schedule.bringForward(m, time.Now())
		}
		return
	}
	if m, ok := simba.ParseMutexChannel(channel); ok && s.b.waiters.Count(m) > 0 {
		s.b.schedule.bringForward(m, time.Now())
	}
}

// onResubscribed handles a restored connection or channel. Since messages were lost, it catches up.
func (s *subscriptions) onResubscribed() {
	s.b.checks.Again() // the connection may be new, and lead to another node
	s.catchUp()
}

// catchUp reconciles all mutexes that concern this server. If messages were lost, it also repeats
// the notices of reservations on the channels of polling contenders. For a new channel,
// Backend.Subscribed repeats these notices. While the checks refuse Redis, no script hands a mutex
// off, so catchUp also runs after the repair.
func (s *subscriptions) catchUp() {
	now := time.Now()
	for _, m := range s.b.waiters.Mutexes() {
		s.b.schedule.bringForward(m, now)
	}
	for _, m := range s.b.orphanedMutexes() {
		s.b.schedule.bringForward(m, now)
	}
	for _, sub := range s.all() {
		for _, name := range sub.names() {
			m, ok := simba.ParseMutexChannel(name)
			if !ok {
				m, _, ok = simba.ParseContenderChannel(name)
			}
			if ok {
				s.b.schedule.bringForward(m, now)
			}
		}
		var contenders []interruption
		for name, count := range sub.interrupted() {
			if _, _, ok := simba.ParseContenderChannel(name); ok {
				contenders = append(contenders, interruption{name, count})
			} else {
				sub.markCaughtUp(name, count)
			}
		}
		s.renotify(sub, contenders)
	}
}

// interruption is a channel on which messages may have been lost.
type interruption struct {
	channel string
	count   int // see subscription.interruptions
}

// renotify repeats the notices of reservations on the channels of polling contenders at one node,
// one after another. A later call for the same node replaces a running one.
func (s *subscriptions) renotify(sub *subscriber, channels []interruption) {
	s.mu.Lock()
	sub.renotification++
	this := sub.renotification
	s.mu.Unlock()
	if len(channels) == 0 {
		return
	}
	mutex, _, _ := simba.ParseContenderChannel(channels[0].channel)
	s.b.background(mutex, func(ctx context.Context) {
		for len(channels) > 0 && ctx.Err() == nil {
			s.mu.Lock()
			replaced := sub.renotification != this
			s.mu.Unlock()
			if replaced {
				return
			}
			next := channels[0]
			m, c, _ := simba.ParseContenderChannel(next.channel)
			if s.b.waiters.Find(m, c) == nil && s.b.notices.Subscribed(next.channel) {
				if _, err := s.b.runReconcile(ctx, m, c, nil); err != nil {
					pause(ctx, retryAfter)
					continue
				}
			}
			sub.markCaughtUp(next.channel, next.count)
			channels = channels[1:]
		}
	})
}
