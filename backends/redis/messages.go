package redis

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// foreignDelay is how long the server waits before it attributes a notice to another program. The
// reply of its own script may arrive a little later than the script's notice.
const foreignDelay = 5 * time.Millisecond

// onMessage handles a message. It must not block, because its subscriber handles no other message
// meanwhile.
func (s *subscriptions) onMessage(m *redis.Message) {
	if m.Pattern == contenderGlob {
		s.onContenderNotice(m.Channel, m.Payload)
		return
	}
	if m.Pattern != "" {
		if sub := s.subscriberForChannel(m.Channel); sub != nil && sub.confirmed(m.Channel) {
			return // it also arrives by the channel's own subscription
		}
	}
	if m.Channel == s.serverChannel() {
		s.onGrantMessage(m.Payload)
		return
	}
	if name, ok := strings.CutPrefix(m.Channel, serversPrefix); ok {
		s.b.onSilentReservation(name, m.Payload)
		return
	}
	if mutex, ok := simba.ParseEventChannel(m.Channel); ok {
		s.b.recordEvent(mutex, m.Payload)
		return
	}
	receivers := s.b.Notices.Publish(m.Channel, m.Payload)
	if mutex, ok := simba.ParseMutexChannel(m.Channel); ok {
		s.b.onNotice(mutex, m.Payload)
		return
	}
	if mutex, contender, ok := simba.ParseContenderChannel(m.Channel); ok && m.Pattern == "" {
		s.b.onReservation(mutex, contender, receivers)
	}
}

// onContenderNotice handles a release notice to one contender. If this server has waiters or
// subscribers of the mutex, it schedules a reconciliation, whose script gets the notice. Simba up
// to 3.1 publishes such notices, even to dead contenders. Our own scripts publish notices of the
// same form, which reconcile.lua recognizes.
func (s *subscriptions) onContenderNotice(channel, payload string) {
	mutex, contender, ok := simba.ParseContenderChannel(channel)
	releaser, isRelease := strings.CutPrefix(payload, "released@@")
	if !ok || !isRelease {
		return
	}
	name := simba.MutexChannel(mutex)
	if sub := s.subscriberForChannel(name); s.b.Waiters.Count(mutex) == 0 && !s.hasSubscriber(mutex) && (sub == nil || !sub.confirmed(name)) {
		return
	}
	s.b.mu.Lock()
	all := append(s.b.contenderNotices[mutex], contenderNotice{contender, releaser})
	s.b.contenderNotices[mutex] = all[max(0, len(all)-maxContenderNotices):]
	s.b.mu.Unlock()
	s.b.schedule.bringForward(time.Now(), mutex)
}

// onGrantMessage handles a grant that another server's script made to a waiter here: "mutex
// contender token ticket". Token 0 says that the ticket's queue entry is gone: another request of
// the contender has taken it over, or released it. An empty message is a liveness probe.
func (s *subscriptions) onGrantMessage(payload string) {
	f := strings.Split(payload, " ")
	if len(f) != 4 {
		return
	}
	token, err := strconv.ParseUint(f[2], 10, 64)
	if err != nil {
		return
	}
	if token == 0 {
		s.b.endWait(f[0], f[1], f[3], proxy.Grant{Confirm: true})
		return
	}
	s.b.background(f[0], func(ctx context.Context) {
		s.b.confirmGrant(ctx, f[0], grant{contender: f[1], token: token, ticket: f[3]})
	})
}

func (b *Backend) recordEvent(mutex, payload string) {
	var e struct {
		At                 int64
		Event, Mutex       string
		Owner, Reason, Via string
		Token              uint64
	}
	if json.Unmarshal([]byte(payload), &e) != nil || e.Mutex != mutex || eventKinds[e.Event] == 0 {
		return
	}
	if e.Via == b.id && e.Token == 0 {
		// This server has recorded the event from the reply of its own script. The event log would
		// not notice the duplicate, because the event has no token.
		return
	}
	b.Events.Record(simba.Event{
		At: e.At, Kind: eventKinds[e.Event], Mutex: mutex, Owner: e.Owner, Token: e.Token, Reason: e.Reason,
	})
}

// onNotice reconciles a mutex after a notice of a change that this server does not know. The change
// may have been made without our scripts. Tenures that begin matter only to subscribers.
func (b *Backend) onNotice(mutex, payload string) {
	kind, owner, _ := strings.Cut(payload, "@@")
	released := kind == "released"
	last, ok := b.Events.Last(mutex)
	switch {
	case released && b.Waiters.Count(mutex) > 0:
		b.schedule.bringForward(time.Now(), mutex)
	case !released && (kind != "acquired" || !b.subs.hasSubscriber(mutex)):
	case ok && last.Owner == owner && released == (last.Kind != simba.EventAcquired):
	default:
		b.schedule.bringForward(time.Now().Add(foreignDelay), mutex)
	}
}

// onSilentReservation reconciles a mutex that a script of another server has reserved for a
// contender that gets no notice. The reconciliation learns when the reservation ends. Without it,
// the mutex would stay free for longer if that server crashes.
func (b *Backend) onSilentReservation(name, server string) {
	mutex, ok := simba.ParseMutexChannel("simba:" + name)
	if ok && server != b.id && (b.Waiters.Count(mutex) > 0 || b.subs.hasSubscriber(mutex)) {
		b.schedule.bringForward(time.Now(), mutex)
	}
}

// onReservation handles a notice that a free mutex is reserved for a contender. If no client
// received it, and the contender does not wait here, the reservation goes to the next waiter.
func (b *Backend) onReservation(mutex, contender string, receivers int) {
	if receivers == 0 && b.Waiters.Find(mutex, contender) == nil {
		b.background(mutex, func(ctx context.Context) {
			// On an error the reservation ends with the handoff window.
			_, _ = b.ask(ctx, mutex, leaveScript, contender, "", "gone")
		})
	}
}
