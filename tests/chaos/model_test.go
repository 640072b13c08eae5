package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// rules are the sequential specification of a mutex: a fenced lease on the test's clock.
//
// An operation takes effect between its call and its return, so its windows begin in this interval.
// A lease of length T that begins in [call, ret] ends in [call+T, ret+T]. Before call+T every
// client must see the lease. After ret+T no client may see it. In between, a reply that the mutex
// is free proves that the lease has ended.
type rules struct {
	guarantees
	losses   []loss
	absences []absence
	crash    *crash                   // nil = no crash undoes a reply
	returns  []instant                // when the operations with a reply returned, sorted
	longest  map[string]time.Duration // the longest lease that each contender requested

	first         state   // state of the mutex before all operations
	noGrantBefore instant // end of the recovery delay: until then ACQUIRE grants and renews nothing
	refusesUntil  instant // until then ACQUIRE may reply busy to the owner
}

// state is the state of the mutex between two operations. The zero state is a mutex that nobody has
// used.
type state struct {
	owner       string  // "" = free
	token       uint64  // token of the owner; 0 = no reply has shown it yet
	largest     uint64  // every new tenure has a larger token
	ends        instant // the earliest end of the lease
	start       instant // the latest start of the windows
	lease       time.Duration
	granter     int  // the server that granted the tenure
	revocable   int  // id of the request whose grant the server may take back; 0 = none
	unannounced bool // the granter may still have to write the grant to the store
	// the granter has ended the tenure, and no server renews it any more
	ended bool
	roams bool // the owner may also wait at another server, which may be the real granter
	// No request that is sent later sees the tenure: its waiter has a reply that it has no tenure. 0 = none
	hiddenUntil instant
	now         instant // the earliest time of the last operation
	done        int     // the number of operations so far that have a reply
}

// model returns the rules in porcupine's form, for histories of one mutex.
func (r *rules) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return r.first },
		Step: func(s, in, out any) (bool, any) {
			return r.step(s.(state), in.(request), out.(reply))
		},
		DescribeOperation: func(in, out any) string { return operation{in.(request), out.(reply)}.String() },
		DescribeState:     func(s any) string { return s.(state).String() },
	}
}

func (s state) String() string {
	if s.owner == "" {
		return fmt.Sprintf("free; the next token is larger than %d", s.largest)
	}
	return fmt.Sprintf("owned by %s with token %d; the lease began at %v or earlier, lasts %v, and ends at %v or later",
		s.owner, s.token, time.Duration(s.start), s.lease, time.Duration(s.ends))
}

// inTime reports whether all remaining operations can still take effect before they return. After n
// operations with a reply are placed in the order, one of the n+1 operations that return first is
// not placed yet. It must take effect before it returns. So the clock must not be later than return
// n+1.
func (r *rules) inTime(s state) bool { return s.done >= len(r.returns) || s.now <= r.returns[s.done] }

func (r *rules) step(s state, in request, out reply) (bool, state) {
	if out.unknown {
		// An operation without effect may stand only at the end. So porcupine tries fewer orders.
		next := r.perhaps(s, in)
		return s.done == len(r.returns) || next != s && r.inTime(next), next
	}
	if out.ret < s.now {
		return false, s // an earlier step in this order happened only after this operation's return
	}
	s.now = max(s.now, in.call)
	if !s.unannounced { // else the windows begin when the granter learns of the grant
		s.start = min(s.start, out.ret)
	}
	s.done++
	ok, s := r.answered(s, in, out)
	return ok && r.inTime(s), s
}

// answered returns whether an operation's reply is possible in a state, and the next state.
func (r *rules) answered(s state, in request, out reply) (bool, state) {
	switch in.kind {
	case acquire, wait:
		return r.acquired(s, in, out)
	case guard:
		if out.status == "renewed" {
			return r.renewed(s, in, out)
		}
		return r.lost(s, in, out)
	case release:
		if out.done {
			ok, s := r.holds(s, in, in.contender, in.token)
			return ok, s.freed()
		}
		return r.lostTo(s, in.contender, in.token, out.ret)
	case check:
		if out.done {
			return r.holds(s, in, s.owner, in.token)
		}
		if r.cautious && after(out.ret, time.Duration(out.ret-in.call)) >= s.ends {
			return true, s
		}
		return r.lostTo(s, s.owner, in.token, out.ret)
	case breakUp:
		if out.done {
			ok, s := r.holds(s, in, s.owner, 0)
			return ok, s.freed()
		}
		return r.reportedFree(s, out.ret)
	case owner:
		return r.seen(s, in, out)
	}
	panic("no operation of a client: " + in.kind.String())
}

// perhaps returns the next state after an operation with an unknown outcome. If the operation can
// take effect here, it does. Porcupine also tries it at the end, where it has no effect.
func (r *rules) perhaps(s state, in request) state {
	if in.until != 0 && max(s.now, in.call) > in.until {
		return s
	}
	if in.kind > guard && in.kind != renewal && s.token == 0 {
		return s // there is no tenure that the request can end, or no reply has shown it (see free)
	}
	over := r.over(s, in.server)
	own := s.owner != "" && s.owner == in.contender && max(s.now, in.call) <= over
	here := s
	here.now = max(s.now, in.call)
	switch in.kind {
	case acquire, wait:
		here.now = max(here.now, r.noGrantBefore)
		ok, next := r.free(here, never)
		if !ok {
			return s
		}
		if r.requeues {
			in.call = next.now // a tenure after another one of the same wait has its whole lease, too
		}
		s = r.granted(next, in, 0, never)
		if r.requeues {
			s.hiddenUntil = in.until
		}
		if in.kind == wait || r.presumes {
			s.revocable = in.id
		}
	case renewal, guard:
		if own && !s.ended && s.mayHave(in.token) {
			if r.again { // the server may repeat the request later
				over = max(over, after(in.call, retryLimit))
			}
			s = r.renew(here.known(in.token), in, over)
		}
	case release:
		if own && s.mayHave(in.token) {
			s = here.known(in.token).freed()
		}
	case breakUp:
		if s.owner != "" {
			s = here.freed()
		}
	case giveBack:
		if s.revocable == in.id {
			s = here.freed()
		}
	}
	return s
}

func (r *rules) acquired(s state, in request, out reply) (bool, state) {
	if out.ret < r.noGrantBefore && (out.status == "acquired" || out.status == "renewed") {
		return false, s
	}
	switch out.status {
	case "acquired":
		if s.revocable != 0 && s.owner == in.contender && s.token == out.token && r.becomesTenure(s, in.server) {
			s.revocable, s.unannounced = 0, false // the presumed tenure has become a real one
			s = r.renew(s, in, out.ret)
			return out.owner == in.contender && r.within(in, out), s
		}
		ok, s := r.free(s, out.ret)
		if r.requeues {
			in.call = s.now // the lease begins with the grant, however long the waiter has waited
		}
		return ok && out.owner == in.contender && out.token > s.largest && r.within(in, out), r.granted(s, in, out.token, out.ret)
	case "renewed":
		return r.renewed(s, in, out)
	case "busy", "queued", "timeout":
		// another request of the contender took over the queue entry of this one
		moved := in.kind == wait && out.status == "queued"
		recovering := in.call < r.refusesUntil // ACQUIRE renews nothing then
		if out.owner == in.contender && !moved && !recovering && (out.status != "timeout" || !r.again) {
			return false, s
		}
		return r.seen(s, in, out)
	}
	return false, s
}

func (r *rules) renewed(s state, in request, out reply) (bool, state) {
	ok, s := r.holds(s, in, in.contender, out.token)
	// Only the granter renews, and by then it has not ended the lease.
	ok = ok && (!r.lingers || in.call <= after(s.start, s.lease+r.late))
	ok = ok && !s.ended && out.owner == in.contender && (in.token == 0 || in.token == out.token) && r.within(in, out)
	s = r.renew(s, in, out.ret)
	s.revocable, s.unannounced = 0, false
	return ok, s
}

// within reports whether the lease in the reply is at most as long as requested. If r.again,
// another request of the contender may have set the lease in between.
func (r *rules) within(in request, out reply) bool {
	if r.again {
		return out.left <= r.longest[in.contender]+r.late+r.imprecision
	}
	return out.left <= max(in.lease, in.most)
}

// lost checks a GUARD with the reply "lost" and the present owner.
func (r *rules) lost(s state, in request, out reply) (bool, state) {
	if out.status != "lost" || out.owner == in.contender && (in.token == 0 || in.token == out.token) {
		return false, s
	}
	return r.seen(s, in, out)
}

// seen checks a reply that shows the present owner, or that the mutex is free.
func (r *rules) seen(s state, in request, out reply) (bool, state) {
	if out.owner == "" {
		return r.reportedFree(s, out.ret)
	}
	ok, s := r.holds(s, in, out.owner, out.token)
	if out.left > 0 { // rounded up to milliseconds
		ok = ok && after(out.ret, out.left+r.imprecision) >= s.ends && after(in.call, out.left-time.Millisecond) <= r.latestEnd(s, in.server)
	}
	return ok, s
}

// holds requires that, as far as the server knows, the tenure still runs at some instant after the
// call.
func (r *rules) holds(s state, in request, owner string, token uint64) (bool, state) {
	hidden := s.hiddenUntil != 0 && in.call > s.hiddenUntil
	return s.owner != "" && s.owner == owner && s.mayHave(token) && !hidden && in.call <= r.over(s, in.server), s.known(token)
}

// lostTo requires that at some instant up to ret the tenure does not run.
func (r *rules) lostTo(s state, owner string, token uint64, ret instant) (bool, state) {
	if s.owner == "" || s.owner != owner || token != 0 && s.token != token {
		return true, s
	}
	return r.reportedFree(s, ret)
}

// reportedFree checks a reply that the mutex has no owner at some instant up to ret. Then the mutex
// is free for all clients, with two exceptions. The granter may not know yet when the lease began,
// or may still have to write the grant to the store.
func (r *rules) reportedFree(s state, ret instant) (bool, state) {
	if s.owner != "" && r.presumes && s.revocable != 0 {
		s.now = max(s.now, s.ends)
		// A server replies so only if the granter has ended the tenure or has lost its leases. So
		// without a loss, the granter has ended it.
		s.ended = s.ended || s.unannounced && s.revocable == 0 && !slices.ContainsFunc(r.losses, func(l loss) bool {
			return l.server == s.granter && l.from <= ret
		})
		return ret >= s.ends && s.token != 0, s
	}
	return r.free(s, ret)
}

// free requires that at some instant up to ret the mutex has no owner. If it had one, the lease
// must have ended. free refuses to end a tenure that no reply has shown. Every set of replies that
// an order with such an end explains is explained without it, too. The refusal only saves time.
func (r *rules) free(s state, ret instant) (bool, state) {
	if s.owner == "" {
		return true, s
	}
	s.now = max(s.now, s.ends)
	return ret >= s.ends && s.token != 0, s.freed()
}

func (r *rules) granted(s state, in request, token uint64, ret instant) state {
	s = s.freed()
	s.owner, s.token, s.granter, s.roams = in.contender, token, in.server, in.roams
	s.largest = max(s.largest, token)
	s.unannounced = r.presumes && in.kind == wait && r.away(s.granter, in.call, after(ret, writeDelay))
	return r.renew(s, in, ret)
}

func (r *rules) renew(s state, in request, ret instant) state {
	s.start, s.lease = ret, in.lease
	s.ends = after(in.call, in.lease-r.early)
	for _, l := range r.losses {
		if l.server == s.granter && l.to > in.call {
			s.ends = min(s.ends, max(in.call, l.from))
		}
	}
	return s
}

func (r *rules) away(server int, from, to instant) bool {
	return slices.ContainsFunc(r.absences, func(a absence) bool { return a.server == server && a.from <= to && a.to >= from })
}

// over returns the latest end of the lease, as a server sees it. If the granter was away, the lease
// may last until the granter is back, or its session has ended.
func (r *rules) over(s state, server int) instant {
	over := after(s.start, s.lease+r.late)
	lingers := r.lingers && (server != s.granter || s.roams || r.ended(server))
	if !r.takesOver && !r.presumed(s, server) && !lingers {
		return over
	}
	for _, a := range r.absences {
		switch {
		case r.takesOver && a.from <= over:
			over = max(over, after(a.to, s.lease))
		case a.server != s.granter && !s.roams || a.from > over:
		default:
			over = max(over, a.to)
		}
	}
	return over
}

// presumed reports whether a server acts as if a waiter had been granted the mutex, although the
// granter has not confirmed the grant. Once the granter has reported the grant, this is not so at
// the granter itself.
func (r *rules) presumed(s state, server int) bool {
	return s.unannounced && (server != s.granter || s.revocable != 0 || r.ended(server))
}

// becomesTenure reports whether a server may still reply "acquired" for a presumed tenure. It may
// do so until the windows are over. If the granter may be unreachable then, it may do so until the
// granter is back.
func (r *rules) becomesTenure(s state, server int) bool {
	over := r.over(s, server)
	return r.presumes && (s.now <= over || slices.ContainsFunc(r.absences, func(a absence) bool {
		return a.server == s.granter && a.from <= over && a.to >= s.now
	}))
}

func (r *rules) ended(server int) bool {
	return slices.ContainsFunc(r.absences, func(a absence) bool { return a.server == server && a.ended })
}

// latestEnd returns the latest end of the lease that a reply may show. A server that only presumes
// the grant reports full windows each time.
func (r *rules) latestEnd(s state, server int) instant {
	if r.presumed(s, server) {
		return after(r.over(s, server), s.lease+r.imprecision)
	}
	if r.lingers {
		return after(s.start, s.lease+r.late+r.imprecision)
	}
	return after(r.over(s, server), r.imprecision)
}

// mayHave reports whether the owner may have the given token; 0 stands for any token.
func (s state) mayHave(token uint64) bool {
	return token == 0 || s.token == token || s.token == 0 && token > s.largest
}

// known sets the owner's token if a reply shows it for the first time.
func (s state) known(token uint64) state {
	if s.token == 0 && token != 0 {
		s.token, s.largest = token, max(s.largest, token)
	}
	return s
}

// freed returns the state after s in which the mutex is free. If a tenure runs in s, it ends.
func (s state) freed() state {
	if s.owner != "" && s.token == 0 {
		s.largest++ // the tenure had a token, though no reply showed it
	}
	return state{largest: s.largest, now: s.now, done: s.done}
}

// roams reports whether the contender of a request may have had a queue entry at another server.
// That is so if the contender sent a request there and no reply showed that it left the queue. A
// later grant removes all its entries.
func roams(all []operation, o operation) bool {
	return slices.ContainsFunc(all, func(p operation) bool {
		asked := p.contender == o.contender && p.server != o.server && (p.kind == acquire || p.kind == wait) && p.call <= o.ret
		return asked && (p.unknown || p.status == "queued") && !slices.ContainsFunc(all, func(g operation) bool {
			return g.contender == o.contender && g.status == "acquired" && g.call > p.ret && g.ret < o.call
		})
	})
}

// lostLease returns the longest lease for which the contender of o asked in a request without a
// reply. It considers only requests that were sent before the reply to o arrived.
func lostLease(all []operation, o operation) (longest time.Duration) {
	for _, p := range all {
		if p.unknown && p.contender == o.contender && p.call <= o.ret {
			longest = max(longest, p.lease)
		}
	}
	return longest
}

// check looks for an order of the operations of one mutex that keeps the rules. It is not safe for
// concurrent use.
func (r *rules) check(all []operation) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	if r.crash != nil {
		return r.checkCrash(all)
	}
	return r.search(all)
}

// search looks for an order of the operations that keeps the rules and begins in the state r.first.
func (r *rules) search(all []operation) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	r.returns, r.longest = nil, make(map[string]time.Duration)
	all = slices.Clone(all)
	for i, o := range all {
		all[i].roams = roams(all, o)
		if o.kind == wait {
			all[i].most = lostLease(all, o)
		}
		r.longest[o.contender] = max(r.longest[o.contender], o.lease)
		if !o.unknown {
			r.returns = append(r.returns, o.ret)
		}
	}
	slices.Sort(r.returns)
	return porcupine.CheckOperationsVerbose(r.model(), r.outcomes(all), checkTimeout)
}
