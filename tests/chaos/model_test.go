package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// rules are the sequential specification of a mutex: a fenced lease on one clock.
//
// The clock is the test's. A step happens between its call and its return, so the windows
// that it sets begin there too, and a lease of length T from [call, ret] ends in [call+T, ret+T]. Before, it
// has not ended for anybody; after, it has for everybody; in between as the replies say.
// What is told closes in on the truth: that the mutex is free means that the end has passed.
type rules struct {
	guarantees
	losses   []loss
	absences []absence
	crash    *crash                   // nil = nothing that was told is undone
	returns  []instant                // of the operations with a reply, sorted
	longest  map[string]time.Duration // the lease that each contender asked for, at most

	first state   // of the mutex
	quiet instant // nobody is granted anything before it, and ACQUIRE renews nothing
	loud  instant // nor need it be so before that
}

// state is that of the mutex between two steps. The zero state is a mutex that was never used.
type state struct {
	owner   string // "" = free
	token   uint64 // of the owner; 0 = nobody has been told it
	largest uint64 // every new tenure has a larger token
	ends    instant
	start   instant // the windows began then or before
	lease   time.Duration
	keeper  int  // the server that granted the tenure
	untold  int  // the request for which it may be taken back; 0 = none
	unsaid  bool // granted to a waiter by a server that may have had no time to tell others of it
	ended   bool // told to be free by its server, which has its session yet: it is not renewed then
	roams   bool // its contender may have a place at another server too, which keeps it then
	exact   bool // begun or renewed last by the server that keeps it, so that its windows are the same for all
	afar    bool // renewed through another server than its own, which was away
	now     instant
	done    int // how many operations with a reply there were
}

// model is the rules as porcupine wants them: for histories of one mutex.
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
		return fmt.Sprintf("free, tokens after %d", s.largest)
	}
	return fmt.Sprintf("%s by token %d, ends %v or later, began %v or before for %v",
		s.owner, s.token, time.Duration(s.ends), time.Duration(s.start), s.lease)
}

// inTime reports whether the operations that are yet to come can be in time: if n of them are done, one
// of the n+1 that return first is not.
func (r *rules) inTime(s state) bool { return s.done >= len(r.returns) || s.now <= r.returns[s.done] }

func (r *rules) step(s state, in request, out reply) (bool, state) {
	if out.unknown {
		// Where it would do nothing it is not done, unless all is over: so porcupine has less to try.
		next := r.perhaps(s, in)
		return s.done == len(r.returns) || next != s && r.inTime(next), next
	}
	if out.ret < s.now {
		return false, s // something before it cannot have happened so early
	}
	s.now = max(s.now, in.call)
	s.start = min(s.start, out.ret)
	s.done++
	ok, s := r.answered(s, in, out)
	return ok && r.inTime(s), s
}

// answered is the step of an operation with a reply.
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
		return r.toldFree(s, out.ret)
	case owner:
		return r.seen(s, in, out)
	}
	panic("no operation of a client: " + in.kind.String())
}

// perhaps is the step of an operation of which nobody knows whether it was done. It is done here, if
// it can be; that it was not is what porcupine finds when it puts it behind all others.
func (r *rules) perhaps(s state, in request) state {
	if in.until != 0 && max(s.now, in.call) > in.until {
		return s
	}
	if in.kind > guard && in.kind != renewal && s.token == 0 {
		return s // there is nothing to end, or it is as in free
	}
	over := r.over(s, in.server)
	own := s.owner != "" && s.owner == in.contender && max(s.now, in.call) <= over
	here := s
	here.now = max(s.now, in.call)
	switch in.kind {
	case acquire, wait:
		here.now = max(here.now, r.quiet)
		ok, next := r.free(here, never)
		if !ok {
			return s
		}
		s = r.granted(next, in, 0, never)
		if in.kind == wait || r.presumes {
			s.untold = in.id
		}
	case renewal, guard:
		if own && !s.ended && s.mayHave(in.token) {
			if r.again { // what was in time may be asked again later
				over = max(over, after(in.call, trying))
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
		if s.untold == in.id {
			s = here.freed()
		}
	}
	return s
}

func (r *rules) acquired(s state, in request, out reply) (bool, state) {
	if out.ret < r.quiet && (out.status == "acquired" || out.status == "renewed") {
		return false, s
	}
	switch out.status {
	case "acquired":
		if s.untold != 0 && s.owner == in.contender && s.token == out.token && r.comesTrue(s, in.server) {
			s.untold, s.unsaid = 0, false // what was taken for its tenure has become one
			s = r.renew(s, in, out.ret)
			return out.owner == in.contender && r.within(in, out), s
		}
		ok, s := r.free(s, out.ret)
		return ok && out.owner == in.contender && out.token > s.largest && r.within(in, out), r.granted(s, in, out.token, out.ret)
	case "renewed":
		return r.renewed(s, in, out)
	case "busy", "queued", "timeout":
		moved := in.kind == wait && out.status == "queued" // another request of the contender took its place over
		quiet := in.call < r.loud                          // then an owner is to wait, or to GUARD
		if out.owner == in.contender && !moved && !quiet && (out.status != "timeout" || !r.again) {
			return false, s
		}
		return r.seen(s, in, out)
	}
	return false, s
}

func (r *rules) renewed(s state, in request, out reply) (bool, state) {
	ok, s := r.holds(s, in, in.contender, out.token)
	ok = ok && !s.ended && out.owner == in.contender && (in.token == 0 || in.token == out.token) && r.within(in, out)
	s = r.renew(s, in, out.ret)
	s.untold, s.unsaid = 0, false
	return ok, s
}

// within reports whether someone was told of no longer a lease than it had asked for: by this request, or by
// another of its own that may have come in between.
func (r *rules) within(in request, out reply) bool {
	if r.again {
		return out.left <= r.longest[in.contender]+r.late+r.rough
	}
	return out.left <= max(in.lease, in.most)
}

// lost is a GUARD that was answered so, with the present owner.
func (r *rules) lost(s state, in request, out reply) (bool, state) {
	if out.status != "lost" || out.owner == in.contender && (in.token == 0 || in.token == out.token) {
		return false, s
	}
	return r.seen(s, in, out)
}

// seen is that someone was told of the present owner, or that there is none.
func (r *rules) seen(s state, in request, out reply) (bool, state) {
	if out.owner == "" {
		return r.toldFree(s, out.ret)
	}
	ok, s := r.holds(s, in, out.owner, out.token)
	if out.left > 0 { // rounded up to milliseconds
		ok = ok && after(out.ret, out.left+r.rough) >= s.ends && after(in.call, out.left-time.Millisecond) <= r.told(s, in.server)
	}
	return ok, s
}

// holds is that the tenure runs, by what the server that was asked knows, at an instant not before that.
func (r *rules) holds(s state, in request, owner string, token uint64) (bool, state) {
	return s.owner != "" && s.owner == owner && s.mayHave(token) && in.call <= r.over(s, in.server), s.known(token)
}

// lostTo is that the tenure does not run at an instant not after ret.
func (r *rules) lostTo(s state, owner string, token uint64, ret instant) (bool, state) {
	if s.owner == "" || s.owner != owner || token != 0 && s.token != token {
		return true, s
	}
	return r.toldFree(s, ret)
}

// toldFree is that someone was told that nobody owns the mutex at an instant not after ret. That is so for all from
// then on, unless its server may have yet to learn since when the lease runs, or to tell that it was granted.
func (r *rules) toldFree(s state, ret instant) (bool, state) {
	if s.owner != "" && (r.relearns && !s.exact || r.presumes && s.untold != 0) {
		s.now = max(s.now, s.ends)
		// Its server has ended it, or lost it: nobody else would say so.
		s.ended = s.ended || s.unsaid && s.untold == 0 && !slices.ContainsFunc(r.losses, func(l loss) bool {
			return l.server == s.keeper && l.from <= ret
		})
		return ret >= s.ends && s.token != 0, s
	}
	return r.free(s, ret)
}

// free is that nobody owns the mutex at an instant not after ret: if someone does, its lease
// has ended. A tenure of which nobody was told may have come to an end, but then no reply needs it to have been: such
// an order is the same without, and not looked at, so that porcupine has less to try.
func (r *rules) free(s state, ret instant) (bool, state) {
	if s.owner == "" {
		return true, s
	}
	s.now = max(s.now, s.ends)
	return ret >= s.ends && s.token != 0, s.freed()
}

func (r *rules) granted(s state, in request, token uint64, ret instant) state {
	s = s.freed()
	s.owner, s.token, s.keeper, s.roams = in.contender, token, in.server, in.roams
	s.largest = max(s.largest, token)
	s.unsaid = r.presumes && in.kind == wait && r.away(s.keeper, in.call, after(ret, writing))
	return r.renew(s, in, ret)
}

// renew sets both windows.
func (r *rules) renew(s state, in request, ret instant) state {
	s.start, s.lease = ret, in.lease
	s.exact = in.server == s.keeper && !s.roams
	s.afar = r.relearns && in.server != s.keeper && r.away(s.keeper, in.call, after(ret, in.lease))
	s.ends = after(in.call, in.lease-r.early)
	for _, l := range r.losses {
		if l.server == s.keeper && l.to > in.call {
			s.ends = min(s.ends, max(in.call, l.from))
		}
	}
	return s
}

// away reports whether a server may have been away at some time between two instants.
func (r *rules) away(server int, from, to instant) bool {
	return slices.ContainsFunc(r.absences, func(a absence) bool { return a.server == server && a.from <= to && a.to >= from })
}

// over is when the lease has ended by what a server knows: at the latest when the session of the one that granted it has; or
// when that is back, and has learnt what others have done.
func (r *rules) over(s state, server int) instant {
	over := after(s.start, s.lease+r.late)
	if !r.presumed(s, server) && !s.afar {
		return over
	}
	for _, a := range r.absences {
		switch {
		case a.server != s.keeper || a.from > over:
		case s.afar:
			over = max(over, after(a.to, s.lease))
		default:
			over = max(over, a.to)
		}
	}
	return over
}

// presumed reports whether a server goes by no more than that a waiter of another is the first: that one itself, if
// it goes on, counts the lease from its grant, once it has told of that.
func (r *rules) presumed(s state, server int) bool {
	return s.unsaid && (server != s.keeper || s.untold != 0 || r.ended(server))
}

// comesTrue reports whether a tenure that was presumed may still be told of as acquired at a server: before its windows are over,
// or as long as its own server may not have been heard of.
func (r *rules) comesTrue(s state, server int) bool {
	over := r.over(s, server)
	return r.presumes && (s.now <= over || slices.ContainsFunc(r.absences, func(a absence) bool {
		return a.server == s.keeper && a.from <= over && a.to >= s.now
	}))
}

// ended reports whether a server's process ended.
func (r *rules) ended(server int) bool {
	return slices.ContainsFunc(r.absences, func(a absence) bool { return a.server == server && a.ended })
}

// told is the latest end of the lease that anybody may be told: of a waiter's that its server tells nothing of the
// others tell that it begins each time.
func (r *rules) told(s state, server int) instant {
	if r.presumed(s, server) {
		return after(r.over(s, server), s.lease+r.rough)
	}
	return after(r.over(s, server), r.rough)
}

// mayHave reports whether the owner's token can be that; 0 is any.
func (s state) mayHave(token uint64) bool {
	return token == 0 || s.token == token || s.token == 0 && token > s.largest
}

// known notes the owner's token, if that has been told now.
func (s state) known(token uint64) state {
	if s.token == 0 && token != 0 {
		s.token, s.largest = token, max(s.largest, token)
	}
	return s
}

// freed is the state after the owner has gone.
func (s state) freed() state {
	if s.owner != "" && s.token == 0 {
		s.largest++ // it had one
	}
	return state{largest: s.largest, now: s.now, done: s.done}
}

// roams reports whether the contender of a request may have had a place at another server when it was answered: it asked
// there and was not told how that ended, nor has been granted the mutex since, which takes all its places.
func roams(all []operation, o operation) bool {
	return slices.ContainsFunc(all, func(p operation) bool {
		asked := p.contender == o.contender && p.server != o.server && (p.kind == acquire || p.kind == wait) && p.call <= o.ret
		return asked && (p.unknown || p.status == "queued") && !slices.ContainsFunc(all, func(g operation) bool {
			return g.contender == o.contender && g.status == "acquired" && g.call > p.ret && g.ret < o.call
		})
	})
}

// lostLease is the longest lease of the requests without a reply that a contender has made before it was answered.
func lostLease(all []operation, o operation) (longest time.Duration) {
	for _, p := range all {
		if p.unknown && p.contender == o.contender && p.call <= o.ret {
			longest = max(longest, p.lease)
		}
	}
	return longest
}

// check looks for an order of the operations of one mutex that keeps the rules. It is for one goroutine at a time.
func (r *rules) check(all []operation) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	if r.crash != nil {
		return r.checkCrash(all)
	}
	return r.search(all)
}

// search is check from the first state on.
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
	return porcupine.CheckOperationsVerbose(r.model(), r.outcomes(all), thinking)
}
