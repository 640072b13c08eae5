package chaos

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// outcomes converts the operations for porcupine. It adds the possible effects that the replies do
// not show, each as an operation with an unknown outcome.
func (r *rules) outcomes(all []operation) []porcupine.Operation {
	var checked []porcupine.Operation
	add := func(o operation) {
		checked = append(checked, porcupine.Operation{ClientId: client(o.contender), Input: o.request, Output: o.reply, Call: o.call, Return: o.ret})
	}
	perhaps := func(o operation, k kind) {
		o.kind, o.reply = k, reply{unknown: true, ret: never}
		add(o)
	}
	// The server repeats a request only after the lease of its previous attempt has ended.
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
			for range max(r.more(o, all), r.requeued(o, all)) {
				perhaps(o, o.kind)
			}
			if o.kind == wait || r.presumes {
				perhaps(o, giveBack) // a grant to a disconnected waiter goes to the next waiter
			}
		}
		if (o.kind == wait || o.kind == acquire && r.presumes) && !o.unknown && r.signs(o, all) {
			// The waiter may have been the owner, and lost the mutex before the reply. Or other
			// servers presumed its tenure, and the granter decided otherwise.
			hidden := o
			hidden.until = r.last(o)
			perhaps(hidden, o.kind)
			for range r.requeued(o, all) {
				perhaps(hidden, o.kind)
			}
			if r.again {
				perhaps(o, giveBack) // the reply may show a grant that the server then takes back
			}
		}
		if r.again && !o.unknown && o.lease > 0 && o.ret-o.call >= int64(o.lease) {
			// The store answered the first attempts too late, so the server repeated the request.
			tries := int((o.ret - o.call) / int64(o.lease))
			o.until = o.ret
			renews(o, renewal, min(tries, 1+r.renewals(o, all)))
			if o.kind != guard {
				for range min(tries, 1+r.more(o, all)) {
					perhaps(o, acquire)
				}
			}
		}
	}
	return checked
}

// last returns the last instant at which a request can have begun a tenure. Usually this is the
// instant of its reply. But the server of the request may have been away before it wrote the new
// queue entry to the store. Then other servers may presume a tenure until that server is back.
func (r *rules) last(w operation) instant {
	last := w.ret
	if r.presumes && w.status == "queued" && r.away(w.server, w.call, after(w.ret, writeDelay)) {
		for _, a := range r.absences {
			if a.server == w.server {
				last = max(last, a.to)
			}
		}
	}
	return last
}

// signs reports whether the reply to another request may come from a hidden effect of w. The reply
// to w does not show this effect. The other reply shows a tenure that nothing else explains, or the
// end of a tenure that it does not name. Without such a reply, no order needs the hidden effect.
func (r *rules) signs(w operation, all []operation) bool {
	reported := reportedTokens(w.contender, all)
	for _, o := range all {
		if o.unknown || o.call > r.last(w) || o.ret < w.call {
			continue
		}
		switch {
		case o.kind == breakUp && o.done,
			o.kind == release && o.done && o.request.token == 0 && o.contender == w.contender,
			o.owner == w.contender && r.unreported(w, o, reported):
			return true
		}
	}
	return false
}

// unreported reports whether w may have begun the tenure that the reply seen shows. The request
// acquirer is the one to which a server replied that it had acquired this tenure. If there is an
// acquirer, w can have begun the tenure only where servers presume tenures. Then seen must have
// come before acquirer was sent. If w had its reply before acquirer was sent, it suffices that seen
// came before the reply to acquirer.
func (r *rules) unreported(w, seen operation, reported map[uint64]operation) bool {
	acquirer, is := reported[seen.reply.token]
	return !is || r.presumes && (seen.ret < acquirer.call || w.ret <= acquirer.call && seen.ret < acquirer.ret)
}

// reportedTokens returns, by token, the requests with which a contender acquired the mutex.
func reportedTokens(contender string, all []operation) map[uint64]operation {
	reported := make(map[uint64]operation)
	for _, o := range all {
		if o.contender == contender && o.status == "acquired" {
			reported[o.reply.token] = o
		}
	}
	return reported
}

// renewals returns how often the request w may have renewed a lease unnoticed. It may have done so
// more than once only if the server repeats late requests. In that case, later replies show that
// leases of the contender ended early, and renewals counts these leases.
func (r *rules) renewals(w operation, all []operation) int {
	cut := make(map[int]bool) // shortened leases, by the request that set them
	for _, o := range all {
		if last, ok := lastReport(w.contender, o, all); r.again && ok && cutShort(last, o, w, all) {
			cut[last.id] = true
		}
	}
	return max(1, len(cut))
}

// lastReport returns the last operation before seen that showed a contender its lease. If one of
// the contender's reports overlaps seen, ok is false.
func lastReport(contender string, seen operation, all []operation) (last operation, ok bool) {
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

// cutShort reports whether the reply seen shows that a lease ends early, as if w had renewed it
// with shorter windows.
func cutShort(lease, seen, w operation, all []operation) bool {
	mine := seen.contender == lease.contender && seen.reply.token == lease.reply.token
	// the request behind seen has itself begun a new lease
	set := mine && (seen.status == "acquired" || seen.status == "renewed")
	if seen.unknown || set || seen.kind != owner && seen.status == "" || after(seen.ret, seen.left) >= after(lease.call, lease.lease) {
		return false
	}
	from := max(lease.call, w.call) // w took effect after this instant
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

// requeued returns how many tenures beyond the first a wait may have begun unnoticed, because each
// ended before the reply.
func (r *rules) requeued(w operation, all []operation) int {
	if !r.requeues || w.kind != wait {
		return 0
	}
	end := never
	if !w.unknown {
		end = r.last(w)
	}
	n := 0
	meanwhile := slices.DeleteFunc(slices.Clone(all), func(o operation) bool { return o.call > end })
	for _, o := range meanwhile {
		if o.kind == breakUp && o.done && o.ret >= w.call {
			n++ // it may have ended a tenure that no reply has shown
		}
	}
	return max(0, n+unnoticed(w, meanwhile)-1)
}

// more returns how many tenures beyond the first a request may have begun unnoticed, because the
// server repeats late requests.
func (r *rules) more(w operation, all []operation) int {
	if !r.again {
		return 0
	}
	return max(0, unnoticed(w, all)-1)
}

// unnoticed returns how many tenures replies show of the contender of w, after w was sent, of which
// the contender has not learned.
func unnoticed(w operation, all []operation) int {
	reported, seen := reportedTokens(w.contender, all), make(map[uint64]bool)
	for _, o := range all {
		if _, is := reported[o.reply.token]; o.owner == w.contender && !is && o.ret >= w.call {
			seen[o.reply.token] = true
		}
	}
	return len(seen)
}

// client returns the number of a contender in porcupine's picture.
func client(contender string) int {
	if len(contender) < 2 {
		return 0
	}
	return int(contender[1] - '0')
}
