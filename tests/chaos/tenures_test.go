package chaos

import (
	"cmp"
	"fmt"
	"slices"
)

// tenure is what a contender knew of one of its tenures. The contender is surely the owner between
// from and to: from its first reply until the earliest end of its lease. The lease counts from the
// sending of the request.
type tenure struct {
	owner    string
	token    uint64
	asked    instant // when the contender sent the first request whose reply shows the tenure
	renewed  instant // when the contender sent the last request whose reply shows the tenure
	from, to instant
	given    bool  // the contender sent RELEASE, and is no longer sure of the tenure
	servers  []int // the servers that may have granted the tenure
}

// twoOwners returns the pairs of tenures that overlap, and the pairs whose tokens do not grow. It
// pairs a tenure that overlaps several later ones with the first of them.
func (r *rules) twoOwners(all []operation) (wrong []string) {
	tenures, late := r.tenures(all), unanswered(all)
	// the lease of any other tenure may have ended before its first reply
	sure := slices.DeleteFunc(slices.Clone(tenures), func(t tenure) bool { return t.from >= t.to })
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

// late has requests without a reply. Each may take effect once, at any time after its sending, on
// the tenure that its contender then has. Requests with a token come first, since they can end only
// the named tenure. The others are sorted by lease, the longest first.
type late []operation

func unanswered(all []operation) late {
	l := slices.DeleteFunc(slices.Clone(all), func(o operation) bool { return !o.unknown })
	slices.SortFunc(l, func(a, b operation) int {
		return cmp.Or(cmp.Compare(b.request.token, a.request.token), cmp.Compare(b.lease, a.lease))
	})
	return l
}

// end reports whether one of the requests may have ended a tenure up to an instant. It removes that
// request from l. The request must have taken effect after the last renewal of the tenure. So the
// lease that it asks for began after that renewal, too.
//
// Callers pass the tenures in order of time. A request that can explain an end can explain each
// later end, unless its lease is too long. So end uses the longest lease that fits, which leaves
// most requests for later ends.
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

// tenures returns the tenures in the order of their tokens. This is not the order of the replies: a
// contender may learn of its tenure late.
func (r *rules) tenures(all []operation) []tenure {
	byCall := slices.SortedFunc(slices.Values(all), func(a, b operation) int { return cmp.Compare(a.call, b.call) })
	type key struct {
		owner string
		token uint64
	}
	known := make(map[key]*tenure)
	latest := make(map[string]*tenure) // by contender
	asked := make(map[string][]int)    // by contender: servers asked since its last tenure
	doubt := make(map[string][]int)    // by contender: servers that did not reply
	for _, o := range byCall {
		t := latest[o.contender]
		if t != nil && o.kind == release && (o.request.token == 0 || o.request.token == t.token) {
			t.given = true
		}
		switch {
		case t == nil:
		case o.unknown: // see late
		case o.kind == release:
			t.to = min(t.to, o.call)
		case o.lease > 0:
			// whatever the reply, the request may have shortened the lease
			t.to = min(t.to, after(o.call, o.lease))
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
			// The server of the first reply need not be the granter, since the contender may have
			// queue entries at other servers.
			t.servers = slices.Concat([]int{o.server}, asked[o.contender], doubt[o.contender])
			known[k], asked[o.contender] = t, nil
		}
		if t.given && r.crash != nil && o.call >= r.crash.ended {
			continue // the crash undid the release
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
