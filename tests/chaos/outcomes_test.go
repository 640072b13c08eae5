package chaos

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcomes are the operations as porcupine checks them: one of which nobody knows what has come
// of it becomes all that may have.
func (r *rules) outcomes(all []operation) []porcupine.Operation {
	var checked []porcupine.Operation
	add := func(o operation) {
		checked = append(checked, porcupine.Operation{ClientId: client(o.contender), Input: o.request, Output: o.reply, Call: o.call, Return: o.ret})
	}
	perhaps := func(o operation, k kind) {
		o.kind, o.reply = k, reply{unknown: true, ret: never}
		add(o)
	}
	// Each try is made when the lease of the one before was over.
	renews := func(o operation, k kind, times int) {
		for range times {
			perhaps(o, k)
			o.call = after(o.call, o.lease)
		}
	}
	for _, o := range all {
		switch {
		case !o.unknown:
			add(o)
		case o.kind == guard:
			renews(o, guard, r.renewals(o, all))
		case o.kind != acquire && o.kind != wait:
			add(o)
		default:
			renews(o, renewal, r.renewals(o, all))
			if !r.signs(o, all) {
				break
			}
			add(o)
			for range r.more(o, all) {
				perhaps(o, o.kind)
			}
			if o.kind == wait || r.presumes {
				perhaps(o, giveBack) // nobody was there to be told of the grant: it goes on to the next
			}
		}
		if (o.kind == wait || o.kind == acquire && r.presumes) && !o.unknown && r.signs(o, all) {
			// It had the mutex, and lost it before it was told: then it goes on waiting, or is told
			// that its time ran out. Or it is taken to have had it, before its server decides otherwise.
			hidden := o
			hidden.until = r.last(o)
			perhaps(hidden, o.kind)
			if r.again {
				perhaps(o, giveBack) // it is told of a second grant when that is being given back
			}
		}
		if r.again && !o.unknown && o.lease > 0 && o.ret-o.call >= int64(o.lease) {
			// Its first try was too late to be told of; and the next ones.
			tries := int((o.ret - o.call) / int64(o.lease))
			o.until = o.ret
			renews(o, renewal, min(tries, r.renewals(o, all)))
			if o.kind != guard {
				for range min(tries, 1+r.more(o, all)) {
					perhaps(o, acquire)
				}
			}
		}
	}
	return checked
}

// last is the last instant at which a request can have begun a tenure: its reply, unless that was a place in the
// queue and its server had no time to write so before it was away: then others may presume one until it is back.
func (r *rules) last(w operation) instant {
	last := w.ret
	if r.presumes && w.status == "queued" && r.away(w.server, w.call, after(w.ret, writing)) {
		for _, a := range r.absences {
			if a.server == w.server {
				last = max(last, a.to)
			}
		}
	}
	return last
}

// signs reports whether some reply can only be, or can perhaps only be, if a request was granted a tenure that
// it was not told of: someone was told of that, or ended one without telling which. Without, no order needs it: all
// that it could do is to keep the mutex from others.
func (r *rules) signs(w operation, all []operation) bool {
	told := toldTo(w.contender, all)
	for _, o := range all {
		if o.unknown || o.call > r.last(w) || o.ret < w.call {
			continue
		}
		switch {
		case o.kind == breakUp && o.done && (!r.presumes || w.unknown || !explained(o, all)),
			o.kind == release && o.done && o.request.token == 0 && o.contender == w.contender,
			o.owner == w.contender && r.untold(w, o, told):
			return true
		}
	}
	return false
}

// untold reports whether an owner that was seen may be of an earlier request than the one by which it was told, or of one that never
// was: of w. Where others presume, that is so until the one that was told asks, or, if it asked behind w, until it is told.
func (r *rules) untold(w, seen operation, told map[uint64]operation) bool {
	by, is := told[seen.reply.token]
	return !is || r.presumes && (seen.ret < by.call || w.ret <= by.call && seen.ret < by.ret)
}

// explained reports whether a break may have ended a tenure that its owner knows of, as most have: then few requests
// whose outcome was told can have come to another one that it ended.
func explained(b operation, all []operation) bool {
	released := func(o operation) bool {
		return slices.ContainsFunc(all, func(p operation) bool {
			return p.kind == release && p.done && p.contender == o.contender && p.call >= o.ret && p.ret <= b.call
		})
	}
	return slices.ContainsFunc(all, func(o operation) bool {
		owns := o.status == "acquired" || o.status == "renewed"
		return owns && o.call <= b.ret && after(o.ret, o.lease) >= b.call && !released(o)
	})
}

// toldTo returns by which requests a contender was told that it had acquired which tokens.
func toldTo(contender string, all []operation) map[uint64]operation {
	told := make(map[uint64]operation)
	for _, o := range all {
		if o.contender == contender && o.status == "acquired" {
			told[o.reply.token] = o
		}
	}
	return told
}

// renewals returns how many times a request may have renewed a lease without telling: once, or, where the server asks again
// when the answer is late, as often as a lease of its contender was seen to be shorter than that was told last.
func (r *rules) renewals(w operation, all []operation) int {
	cut := make(map[int]bool) // leases, by who was told of them
	for _, o := range all {
		if last, ok := toldLast(w.contender, o, all); r.again && ok && cutShort(last, o, w, all) {
			cut[last.id] = true
		}
	}
	return max(1, len(cut))
}

// toldLast returns the last that told a contender of its lease before it was seen, unless others come in between.
func toldLast(contender string, seen operation, all []operation) (last operation, ok bool) {
	for _, o := range all {
		if o.contender != contender || o.unknown || o.status != "acquired" && o.status != "renewed" || o.call > seen.ret || o.id == seen.id {
			continue
		}
		if o.ret > seen.call {
			return last, false
		}
		if o.ret > last.ret {
			last, ok = o, true
		}
	}
	return last, ok
}

// cutShort reports whether a lease was seen to end before its time, as if it had been renewed by w since, though nobody asked for
// its end.
func cutShort(lease, seen, w operation, all []operation) bool {
	mine := seen.contender == lease.contender && seen.reply.token == lease.reply.token
	set := mine && (seen.status == "acquired" || seen.status == "renewed") // anew, by who is told of it
	if seen.unknown || set || seen.kind != owner && seen.status == "" || after(seen.ret, seen.left) >= after(lease.call, lease.lease) {
		return false
	}
	from := max(lease.call, w.call) // w was done since then
	if seen.owner == lease.owner && seen.reply.token == lease.reply.token {
		return seen.left > 0 && seen.left-time.Millisecond <= w.lease && after(seen.ret, seen.left) >= after(from, w.lease)
	}
	if after(from, w.lease) > seen.ret {
		return false
	}
	return !slices.ContainsFunc(all, func(o operation) bool {
		ended := o.kind == breakUp || o.kind == release && o.contender == lease.contender
		return ended && o.call <= seen.ret && o.ret >= lease.call
	})
}

// more returns how many tenures a request may have begun beyond the first that its contender was not told of, where the
// server asks again when a grant is late: as many as there are.
func (r *rules) more(w operation, all []operation) int {
	if !r.again {
		return 0
	}
	told, seen := toldTo(w.contender, all), make(map[uint64]bool)
	for _, o := range all {
		if _, is := told[o.reply.token]; o.owner == w.contender && !is && o.ret >= w.call {
			seen[o.reply.token] = true
		}
	}
	return max(0, len(seen)-1)
}

// client numbers contenders "c0" to "c9" for porcupine's picture.
func client(contender string) int {
	if len(contender) < 2 {
		return 0
	}
	return int(contender[1] - '0')
}
