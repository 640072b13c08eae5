package redis

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// reply is the reply of a script: the state of a mutex, and what the script did. Times are Unix
// milliseconds of Redis' clock.
type reply struct {
	status   string
	owner    string // "" when free
	token    uint64
	acquired int64
	ttlAt    int64
	ends     int64 // end of the lease, or of a free mutex's reservation; 0 = neither
	now      int64
	position int
	extra    any   // depends on the script: see its file in lua/
	due      int64 // when to reconcile the mutex; 0 = no need
	grants   []grant
	events   []simba.Event

	sent time.Time // when the request was sent
}

// grant is a tenure that a script granted to a waiter of this server.
type grant struct {
	contender string
	token     uint64 // 0 = the tenure has ended
	ticket    string
	expired   bool // no command ended the tenure: it expired, or this server had not confirmed it
}

var errReply = errors.New("redis: unexpected reply of a script; does an incompatible version use the same keys?")

var eventKinds = map[string]simba.EventKind{
	"acquired": simba.EventAcquired, "released": simba.EventReleased, "expired": simba.EventExpired,
	"broken": simba.EventBroken, "queued": simba.EventQueued, "left": simba.EventLeft,
}

// parseReply parses the reply of a script. That of a fast path is short, because replies cost time: it
// ends with the clock, and the reason of a release. After a release it has the owner and the token of
// the tenure that has ended.
func parseReply(mutex string, raw any) (s *reply, err error) {
	list, _ := raw.([]any)
	if len(list) == 8 {
		events := []any{}
		if list[0] != "renewed" {
			events = append(events, list[0], list[1], list[2], list[7])
		}
		if list[0] == "released" {
			list[1], list[2] = "", "0"
		}
		list = append(list[:7:7], int64(0), "", list[5], []any{}, events)
	}
	if len(list) != 12 {
		return nil, errReply
	}
	defer func() {
		if r := recover(); r != nil { // a type assertion failed
			s, err = nil, fmt.Errorf("%w: %v", errReply, r)
		}
	}()
	s = &reply{
		status: list[0].(string), owner: list[1].(string),
		acquired: list[3].(int64), ttlAt: list[4].(int64), ends: list[5].(int64), now: list[6].(int64),
		position: int(list[7].(int64)), extra: list[8], due: list[9].(int64),
	}
	if s.token, err = strconv.ParseUint(list[2].(string), 10, 64); err != nil {
		return nil, errReply
	}
	grants, events := list[10].([]any), list[11].([]any)
	if s.position < 0 || len(grants)%3 != 0 || len(events)%4 != 0 {
		return nil, errReply
	}
	for i := 0; i < len(grants); i += 3 {
		g := grant{contender: grants[i].(string), ticket: grants[i+2].(string)}
		switch fate := grants[i+1].(string); fate {
		case "expired":
			g.expired = true
		case "ended":
		default:
			if g.token, err = strconv.ParseUint(fate, 10, 64); err != nil {
				return nil, errReply
			}
		}
		s.grants = append(s.grants, g)
	}
	for i := 0; i < len(events); i += 4 {
		token, err := strconv.ParseUint(events[i+2].(string), 10, 64)
		kind := eventKinds[events[i].(string)]
		if err != nil || kind == 0 {
			return nil, errReply
		}
		s.events = append(s.events, simba.Event{
			At: s.now, Kind: kind, Mutex: mutex,
			Owner: events[i+1].(string), Token: token, Reason: events[i+3].(string),
		})
	}
	return s, nil
}

// clockOf returns what the node's clock showed, 0 if the reply does not say. late reports whether
// the script did nothing, because its deadline had passed.
func clockOf(raw any) (now int64, late bool) {
	if list, _ := raw.([]any); len(list) > 6 {
		now, _ = list[6].(int64)
		late = list[0] == "late"
	}
	return now, late
}

var acquireStatuses = map[string]simba.Status{
	"acquired": simba.StatusAcquired, "renewed": simba.StatusRenewed, "busy": simba.StatusBusy,
	"queued": simba.StatusQueued, "waiting": simba.StatusWaiting,
	"timeout": simba.StatusTimeout, // only in replies of leave.lua
}

// result returns the outcome in a reply of acquire.lua or leave.lua.
func (s *reply) result() simba.Outcome { return s.outcome(acquireStatuses[s.status]) }

// outcome returns the outcome of a request with a given status. If the requester is the owner, its
// windows count from when the request was sent, so that they end no later than at Redis. Otherwise
// the owner's windows count from the reply. So a client that sleeps until their end does not ask
// too early.
func (s *reply) outcome(status simba.Status) simba.Outcome {
	o := simba.Outcome{
		Status: status, Owner: s.owner, Token: s.token, Position: s.position,
		TTL: proxy.Between(s.now, s.ttlAt), Transition: proxy.Between(s.now, s.ends),
	}
	if status == simba.StatusAcquired || status == simba.StatusRenewed {
		passed := time.Since(s.sent)
		o.TTL, o.Transition = wholeMillis(o.TTL-passed), wholeMillis(o.Transition-passed)
	}
	return o
}

// wholeMillis rounds d down to whole milliseconds, at least 0.
func wholeMillis(d time.Duration) time.Duration { return max(d, 0).Truncate(time.Millisecond) }

// began returns when the lease began, on this server's clock. The result may be somewhat too early,
// never too late.
func (s *reply) began() time.Time { return s.sent.Add(-proxy.Between(s.acquired, s.now)) }

// reconcileAt returns when to reconcile the mutex, on this server's clock. The result is never
// before the instant due.
func (s *reply) reconcileAt() time.Time {
	return time.Now().Add(proxy.Between(s.now, s.due) + time.Millisecond)
}

// readExtra parses the extra of reconcile.lua: the number of waiters, and the session of the lease.
func (s *reply) readExtra() (waiters int64, session string) {
	if extra, _ := s.extra.([]any); len(extra) == 2 {
		waiters, _ = extra[0].(int64)
		session, _ = extra[1].(string)
	}
	return waiters, session
}

// tenure returns the tenure in a reply of reconcile.lua, without its session.
func (s *reply) tenure() simba.Tenure {
	if s.owner == "" {
		return simba.Tenure{}
	}
	waiters, _ := s.readExtra()
	return simba.Tenure{
		Owner: s.owner, Token: s.token,
		AcquiredAt: s.acquired, TTLAt: s.ttlAt, TransitionAt: s.ends, Now: s.now,
		TTL: proxy.Between(s.now, s.ttlAt), Transition: proxy.Between(s.now, s.ends),
		Waiters: int(waiters),
	}
}
