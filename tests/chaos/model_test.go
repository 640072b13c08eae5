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
	losses  []loss
	returns []instant                // of the operations with a reply, sorted
	longest map[string]time.Duration // the lease that each contender asked for, at most
}

// state is that of the mutex between two steps. The zero state is a mutex that was never used.
type state struct {
	owner   string // "" = free
	token   uint64 // of the owner; 0 = nobody has been told it
	largest uint64 // every new tenure has a larger token
	ends    instant
	start   instant // the windows began then or before
	lease   time.Duration
	keeper  int // the server that granted the tenure
	untold  int // the request for which it may be taken back; 0 = none
	now     instant
	done    int // how many operations with a reply there were
}

// model is the rules as porcupine wants them: for histories of one mutex.
func (r *rules) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return state{} },
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
			ok, s := r.holds(s, in.contender, in.token, in.call)
			return ok, s.freed()
		}
		return r.lostTo(s, in.contender, in.token, out.ret)
	case check:
		if out.done {
			return r.holds(s, s.owner, in.token, in.call)
		}
		if r.cautious && after(out.ret, time.Duration(out.ret-in.call)) >= s.ends {
			return true, s
		}
		return r.lostTo(s, s.owner, in.token, out.ret)
	case breakUp:
		if out.done {
			ok, s := r.holds(s, s.owner, 0, in.call)
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
	own := s.owner != "" && s.owner == in.contender && max(s.now, in.call) <= s.over(r.late)
	here := s
	here.now = max(s.now, in.call)
	switch in.kind {
	case acquire, wait:
		_, s = r.free(here, never)
		s = r.granted(s, in, 0, never)
		if in.kind == wait {
			s.untold = in.id
		}
	case renewal, guard:
		if own && s.mayHave(in.token) {
			s = r.renew(here.known(in.token), in, never)
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
	switch out.status {
	case "acquired":
		ok, s := r.free(s, out.ret)
		return ok && out.owner == in.contender && out.token > s.largest && r.within(in, out), r.granted(s, in, out.token, out.ret)
	case "renewed":
		return r.renewed(s, in, out)
	case "busy", "queued", "timeout":
		moved := in.kind == wait && out.status == "queued" // another request of the contender took its place over
		if out.owner == in.contender && !moved && (out.status != "timeout" || !r.again) {
			return false, s
		}
		return r.seen(s, in, out)
	}
	return false, s
}

func (r *rules) renewed(s state, in request, out reply) (bool, state) {
	ok, s := r.holds(s, in.contender, out.token, in.call)
	ok = ok && out.owner == in.contender && (in.token == 0 || in.token == out.token) && r.within(in, out)
	s = r.renew(s, in, out.ret)
	s.untold = 0
	return ok, s
}

// within reports whether someone was told of no longer a lease than it had asked for: by this request, or by
// another of its own that may have come in between.
func (r *rules) within(in request, out reply) bool {
	if r.again {
		return out.left <= r.longest[in.contender]+r.late+r.rough
	}
	return out.left <= in.lease
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
	ok, s := r.holds(s, out.owner, out.token, in.call)
	if out.left > 0 { // rounded up to milliseconds
		ok = ok && after(out.ret, out.left+r.rough) >= s.ends && after(in.call, out.left-time.Millisecond) <= s.over(r.late+r.rough)
	}
	return ok, s
}

// holds is that the tenure runs at an instant not before call.
func (r *rules) holds(s state, owner string, token uint64, call instant) (bool, state) {
	return s.owner != "" && s.owner == owner && s.mayHave(token) && call <= s.over(r.late), s.known(token)
}

// lostTo is that the tenure does not run at an instant not after ret.
func (r *rules) lostTo(s state, owner string, token uint64, ret instant) (bool, state) {
	if s.owner == "" || s.owner != owner || token != 0 && s.token != token {
		return true, s
	}
	return r.toldFree(s, ret)
}

// toldFree is that someone was told that nobody owns the mutex at an instant not after ret.
func (r *rules) toldFree(s state, ret instant) (bool, state) {
	ok, end := r.free(s, ret)
	if r.onlyTold {
		s.now = end.now
		return ok, s
	}
	return ok, end
}

// free is that nobody owns the mutex at an instant not after ret: if someone does, its lease
// has ended.
func (r *rules) free(s state, ret instant) (bool, state) {
	if s.owner == "" {
		return true, s
	}
	s.now = max(s.now, s.ends)
	return ret >= s.ends, s.freed()
}

func (r *rules) granted(s state, in request, token uint64, ret instant) state {
	s = s.freed()
	s.owner, s.token, s.keeper = in.contender, token, in.server
	s.largest = max(s.largest, token)
	return r.renew(s, in, ret)
}

// renew sets both windows.
func (r *rules) renew(s state, in request, ret instant) state {
	s.start, s.lease = ret, in.lease
	s.ends = after(in.call, in.lease-r.early)
	for _, l := range r.losses {
		if l.server == s.keeper && l.to > in.call {
			s.ends = min(s.ends, max(in.call, l.from))
		}
	}
	return s
}

// over is when the lease has ended for everybody.
func (s state) over(late time.Duration) instant { return after(s.start, s.lease+late) }

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

// check looks for an order of the operations of one mutex that keeps the rules. It is for one goroutine at a time.
func (r *rules) check(all []operation) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	r.returns, r.longest = nil, make(map[string]time.Duration)
	for _, o := range all {
		r.longest[o.contender] = max(r.longest[o.contender], o.lease)
		if !o.unknown {
			r.returns = append(r.returns, o.ret)
		}
	}
	slices.Sort(r.returns)
	return porcupine.CheckOperationsVerbose(r.model(), r.outcomes(all), thinking)
}

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
	for _, o := range all {
		switch {
		case !o.unknown || o.kind != acquire && o.kind != wait:
			add(o)
		default:
			perhaps(o, renewal)
			if !signs(o, all) {
				break
			}
			add(o)
			for range r.more(o, all) {
				perhaps(o, o.kind)
			}
			if o.kind == wait {
				perhaps(o, giveBack) // nobody was there to be told of the grant: it goes on to the next
			}
		}
		switch {
		case o.kind == wait && !o.unknown && signs(o, all):
			// It had the mutex, and lost it before it was told: then it goes on waiting, or is told
			// that its time ran out.
			hidden := o
			hidden.until = o.ret
			perhaps(hidden, wait)
			if r.again {
				perhaps(o, giveBack) // it is told of a second grant when that is being given back
			}
		}
		if r.again && !o.unknown && o.lease > 0 && o.ret-o.call >= int64(o.lease) {
			// Its first try was too late to be told of.
			o.until = o.ret
			perhaps(o, renewal)
			if o.kind != guard {
				perhaps(o, acquire)
			}
		}
	}
	return checked
}

// signs reports whether some reply can only be, or can perhaps only be, if a request was granted a tenure that
// it was not told of: someone was told of that, or ended one without telling which. Without, no order needs it: all
// that it could do is to keep the mutex from others.
func signs(w operation, all []operation) bool {
	told := toldTo(w.contender, all)
	for _, o := range all {
		if o.unknown || o.call > w.ret || o.ret < w.call {
			continue
		}
		switch {
		case o.kind == breakUp && o.done,
			o.kind == release && o.done && o.request.token == 0 && o.contender == w.contender,
			o.owner == w.contender && !told[o.reply.token]:
			return true
		}
	}
	return false
}

// toldTo returns the tokens that a contender was told it had acquired.
func toldTo(contender string, all []operation) map[uint64]bool {
	told := make(map[uint64]bool)
	for _, o := range all {
		if o.contender == contender && o.status == "acquired" {
			told[o.reply.token] = true
		}
	}
	return told
}

// more returns how many tenures a request without a reply may have begun beyond the first, where the
// server asks again when a grant is late: as many as there are that its contender was not told of.
func (r *rules) more(w operation, all []operation) int {
	if !r.again {
		return 0
	}
	told, seen := toldTo(w.contender, all), make(map[uint64]bool)
	for _, o := range all {
		if o.owner == w.contender && !told[o.reply.token] && o.ret >= w.call {
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
