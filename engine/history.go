package engine

import (
	"slices"

	"github.com/simba-resp/simba-resp"
)

// ring keeps the last events of a server in order. The zero ring keeps none.
type ring struct {
	events []simba.Event
	limit  int
	oldest int // index of the oldest once it is full
}

func (r *ring) push(e simba.Event) {
	if len(r.events) < r.limit {
		r.events = append(r.events, e)
		return
	}
	if r.limit == 0 {
		return
	}
	r.events[r.oldest] = e
	r.oldest++
	if r.oldest == r.limit {
		r.oldest = 0
	}
}

// at returns the i-th event from the newest, which is 0.
func (r *ring) at(i int) simba.Event {
	i = r.oldest - 1 - i
	if i < 0 {
		i += len(r.events)
	}
	return r.events[i]
}

// historyPart is how many events are looked at under one lock.
const historyPart = 256

// find returns the newest events that a request asks for, from old to new.
func (l *ledger) find(r simba.HistoryRequest) []simba.Event {
	var found []simba.Event
	before := simba.Seq(1<<64 - 1) // all from here on have been looked at
	for i := 0; ; {
		l.mu.Lock()
		// Events that came since the last look have shifted the rest.
		for i < len(l.history.events) && l.history.at(i).Seq >= before {
			i++
		}
		end := min(i+historyPart, len(l.history.events))
		done := end == len(l.history.events)
		for ; i < end; i++ {
			e := l.history.at(i)
			if e.Seq <= r.Since || len(found) == r.Count {
				done = true
				break
			}
			if e.Mutex == r.Mutex {
				found = append(found, e)
			}
			before = e.Seq
		}
		l.mu.Unlock()
		if done {
			slices.Reverse(found)
			return found
		}
	}
}
