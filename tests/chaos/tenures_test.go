package chaos

import (
	"cmp"
	"fmt"
	"slices"
)

// tenure is what a contender knew of one of its own: that it was the owner for sure from its first
// reply on, until its lease, counted from before it asked for it, could have ended. It is no model: a client has
// nothing but this to go by.
type tenure struct {
	owner    string
	token    uint64
	asked    instant // the first of its requests that was answered so
	renewed  instant // the last of them
	from, to instant
	given    bool  // up: its contender asked for that, and cannot be sure of it from then on
	servers  []int // one of which keeps it, as far as the contender knows
}

// twoOwners returns the tenures that overlap one that began later, of those the one that was told first, and the
// tokens that do not grow.
func (r *rules) twoOwners(all []operation) (wrong []string) {
	tenures, late := r.tenures(all), unanswered(all)
	sure := slices.DeleteFunc(slices.Clone(tenures), func(t tenure) bool { return t.from >= t.to }) // the rest were told too late
	for i := 1; i < len(sure); i++ {
		a, b := sure[i-1], slices.MinFunc(sure[i:], func(a, b tenure) int { return cmp.Compare(a.from, b.from) })
		if b.from < a.to && !late.end(a, b.from) {
			wrong = append(wrong, fmt.Sprintf("two owners: %+v, %+v", a, b))
		}
	}
	for i, a := range tenures {
		for j, b := range tenures {
			if a.from < b.asked && a.token >= b.token && i != j {
				wrong = append(wrong, fmt.Sprintf("the token does not grow: %+v, %+v", a, b))
			}
		}
	}
	return wrong
}

// late are requests that had no reply: first those that name a tenure, and can end no other, then those for the longest
// lease. Each of them may come once, at any time since it was sent, to whichever tenure its contender has by then.
type late []operation

func unanswered(all []operation) late {
	l := slices.DeleteFunc(slices.Clone(all), func(o operation) bool { return !o.unknown })
	slices.SortFunc(l, func(a, b operation) int {
		return cmp.Or(cmp.Compare(b.request.token, a.request.token), cmp.Compare(b.lease, a.lease))
	})
	return l
}

// end reports whether one of them may have ended a tenure by an instant, and takes that one out: it came after all that
// renewed the tenure, and a lease that it asked for began no sooner.
//
// Asked in order of time, it excuses as many tenures as can be: what can have come by one instant can have by all that
// follow, so only a lease may be too long for another tenure, and the longest that will do is the one to spare.
func (l *late) end(t tenure, by instant) bool {
	i := slices.IndexFunc(*l, func(o operation) bool {
		may := o.contender == t.owner && (o.request.token == 0 || o.request.token == t.token)
		return may && after(max(o.call, t.renewed), o.lease) <= by
	})
	if i < 0 {
		return false
	}
	*l = slices.Delete(*l, i, i+1)
	return true
}

// tenures returns them in the order in which they began, by their tokens: a contender may be told of its own late.
func (r *rules) tenures(all []operation) []tenure {
	byCall := slices.SortedFunc(slices.Values(all), func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	type key struct {
		owner string
		token uint64
	}
	known := make(map[key]*tenure)
	latest := make(map[string]*tenure) // of each contender
	asked := make(map[string][]int)    // the servers that each has asked for the mutex since
	doubt := make(map[string][]int)    // and those that may have yet to do so, since they never answered
	for _, o := range byCall {
		t := latest[o.contender]
		if t != nil && o.kind == release && (o.request.token == 0 || o.request.token == t.token) {
			t.given = true
		}
		switch {
		case t == nil:
		case o.unknown: // it may end this one, or another: see late
		case o.kind == release:
			t.to = min(t.to, o.call)
		case o.lease > 0:
			t.to = min(t.to, after(o.call, o.lease)) // it may be shorter now, whatever the reply
		}
		if o.kind == acquire || o.kind == wait {
			asked[o.contender] = append(asked[o.contender], o.server)
			if o.unknown {
				doubt[o.contender] = append(doubt[o.contender], o.server)
			}
		}
		if o.unknown || o.kind > guard || o.status != "acquired" && o.status != "renewed" {
			continue
		}
		k := key{o.owner, o.reply.token}
		if t = known[k]; t == nil {
			t = &tenure{owner: o.owner, token: o.reply.token, asked: o.call, from: o.ret}
			// Whoever tells of it first need not keep it: its contender may have a place at another server.
			t.servers = slices.Concat([]int{o.server}, asked[o.contender], doubt[o.contender])
			known[k], asked[o.contender] = t, nil
		}
		if t.given && r.crash != nil && o.call >= r.crash.ended {
			continue // the crash undid its release, and who was granted the mutex then goes by that
		}
		latest[o.contender] = t
		t.renewed, t.to = o.call, after(o.call, o.lease)
	}
	var tenures []tenure
	for _, t := range known {
		for _, o := range byCall {
			if o.kind == breakUp && (o.done || o.unknown) && o.ret >= t.asked {
				t.to = min(t.to, max(t.from, o.call))
			}
		}
		for _, l := range r.losses {
			if l.to > t.asked && slices.Contains(t.servers, l.server) {
				t.to = min(t.to, max(t.from, l.from))
			}
		}
		tenures = append(tenures, *t)
	}
	slices.SortFunc(tenures, func(a, b tenure) int {
		return cmp.Or(cmp.Compare(a.token, b.token), cmp.Compare(a.from, b.from))
	})
	return tenures
}
