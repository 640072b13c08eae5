// Package history keeps the last events of a server, in the order of their Seq, for SIMBA.HISTORY.
// The embedded engine has a Ring. Engines that keep their mutexes in a store have a Log.
package history

import (
	"slices"
	"sync"

	"github.com/simba-resp/simba-resp"
)

// Ring keeps the last events that were pushed. It is not safe for concurrent use. Push needs the
// lock that guards the ring, but Find takes this lock itself. The zero Ring keeps no events.
type Ring struct {
	Limit int // how many events are kept; not to be changed after the first Push

	events []simba.Event
	oldest int // index of the oldest event, 0 until the ring is full
}

// Push adds an event. Its Seq must be larger than that of every earlier event. Push returns the
// event that it drops, the zero Event if it drops none. If Limit is 0, it drops e.
func (r *Ring) Push(e simba.Event) (replaced simba.Event) {
	if len(r.events) < r.Limit {
		r.events = append(r.events, e)
		return replaced
	}
	if r.Limit == 0 {
		return e
	}
	replaced, r.events[r.oldest] = r.events[r.oldest], e
	r.oldest++
	if r.oldest == r.Limit {
		r.oldest = 0
	}
	return replaced
}

// at returns an event by its distance i from the newest one, which has distance 0.
func (r *Ring) at(i int) simba.Event {
	i = r.oldest - 1 - i
	if i < 0 {
		i += len(r.events)
	}
	return r.events[i]
}

// part is how many events Find examines before it releases the lock.
const part = 256

// Find returns the newest events that match a request, from old to new. q.Count must not be 0. Find
// takes mu, the lock that guards the ring, for one part of the ring at a time. So a long search
// delays other goroutines only briefly.
func (r *Ring) Find(mu sync.Locker, q simba.HistoryRequest) []simba.Event {
	var found []simba.Event
	before := simba.Seq(1<<64 - 1) // all events with this Seq or a larger one have been examined
	for i := 0; ; {
		mu.Lock()
		// Events that were pushed while the lock was free have shifted the older ones.
		for i < len(r.events) && r.at(i).Seq >= before {
			i++
		}
		end := min(i+part, len(r.events))
		done := end == len(r.events)
		for ; i < end; i++ {
			e := r.at(i)
			if e.Seq <= q.Since || len(found) == q.Count {
				done = true
				break
			}
			if e.Mutex == q.Mutex {
				found = append(found, e)
			}
			before = e.Seq
		}
		mu.Unlock()
		if done {
			slices.Reverse(found)
			return found
		}
	}
}
