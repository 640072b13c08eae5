package redis

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp"
)

// What is made good when a channel is heard again.

// tuned looks after a mutex that someone waits for and whose channel is heard from now on, and after
// all of them if the channel is of all: what was told there before is lost, and waiters
// that nobody could reach were passed over.
func (t *subscriptions) tuned(channel string) {
	if channel == t.serverChannel() || channel == contenderGlob {
		for _, m := range t.b.waiters.Mutexes() {
			t.b.schedule.advance(m, time.Now())
		}
		return
	}
	if m, ok := simba.ParseMutexChannel(channel); ok && t.b.waiters.Count(m) > 0 {
		t.b.schedule.advance(m, time.Now())
	}
}

// begun looks after all that someone here waits for: while a connection was away,
// anything can have happened. Polling contenders whose channels were away are told again if it
// is their turn. One whose channel is new is not: Subscribed does that.
func (t *subscriptions) begun() {
	now := time.Now()
	for _, m := range t.b.waiters.Mutexes() {
		t.b.schedule.advance(m, now)
	}
	t.b.mu.Lock()
	var orphaned []string
	for m := range t.b.orphans {
		orphaned = append(orphaned, m)
	}
	t.b.mu.Unlock()
	for _, m := range orphaned {
		t.b.schedule.advance(m, now)
	}
	for _, r := range t.all() {
		var polling []away
		for _, name := range r.names() {
			m, ok := simba.ParseMutexChannel(name)
			if !ok {
				m, _, ok = simba.ParseContenderChannel(name)
			}
			if ok {
				t.b.schedule.advance(m, now)
			}
		}
		for name, breaks := range r.interrupted() {
			if _, _, ok := simba.ParseContenderChannel(name); ok {
				polling = append(polling, away{name, breaks})
			} else {
				r.markCaughtUp(name, breaks)
			}
		}
		t.renotify(r, polling)
	}
}

// away is a channel on which messages may have been lost.
type away struct {
	name   string
	breaks int
}

// retell asserts contenders by their channels at one node, one after another.
func (t *subscriptions) renotify(r *subscriber, channels []away) {
	t.mu.Lock()
	r.renotifying++
	this := r.renotifying
	t.mu.Unlock()
	if len(channels) == 0 {
		return
	}
	mutex, _, _ := simba.ParseContenderChannel(channels[0].name)
	t.b.background(mutex, func(ctx context.Context) {
		for len(channels) > 0 && ctx.Err() == nil {
			t.mu.Lock()
			over := r.renotifying != this // the next list is on its way
			t.mu.Unlock()
			if over {
				return
			}
			a := channels[0]
			m, c, _ := simba.ParseContenderChannel(a.name)
			if t.b.waiters.Find(m, c) == nil && t.b.notices.Subscribed(a.name) {
				if _, err := t.b.runReconcile(ctx, m, c, nil); err != nil {
					wait(ctx, retryAfter)
					continue
				}
			}
			r.markCaughtUp(a.name, a.breaks)
			channels = channels[1:]
		}
	})
}
