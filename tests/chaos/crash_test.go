package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// crash is the end of a server's process that may undo the last changes. The operations before the
// crash must be linearizable. The operations after the crash must be linearizable from a state that
// the mutex had shortly before the crash.
type crash struct {
	from  instant       // an instant when the process still ran
	ended instant       // an instant when it had ended
	back  instant       // an instant when the next process served
	lease time.Duration // the longest lease that a reply granted
}

// longest is longer than any lease for which a contender asks (see contender.ask).
const longest = (340 + 200 + 1500) * time.Millisecond

// noteLeases raises c.lease to the longest lease. Callers pass the operations of all mutexes.
func (c *crash) noteLeases(all []operation) {
	for _, o := range all {
		if o.call < c.ended && o.owns() {
			c.lease = max(c.lease, o.lease)
		}
	}
}

// checkCrash looks for an order of the operations before the crash, and of those after it from any
// state that the crash may have left.
func (r *rules) checkCrash(all []operation) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	var before, behind []operation
	for _, o := range all {
		if o.call < r.crash.ended {
			before = append(before, o)
		} else {
			behind = append(behind, o)
		}
	}
	r.first, r.noGrantBefore, r.refusesUntil = state{}, 0, 0
	result, info := r.search(before)
	if result != porcupine.Ok {
		return result, info
	}
	r.noGrantBefore, r.refusesUntil = after(r.crash.ended, r.crash.lease), after(r.crash.back, longest)
	worst := porcupine.Illegal
	for _, s := range r.survivors(before) {
		r.first = s
		if result, info = r.search(behind); result == porcupine.Ok {
			return result, info
		}
		if result == porcupine.Unknown {
			worst = result
		}
	}
	return worst, info
}

// survivors returns the states that the mutex may have after the crash. These are the last state
// before the crash, and each earlier state if the crash may have undone all changes since.
func (r *rules) survivors(before []operation) (states []state) {
	written := r.crash.from - int64(r.unwritten)
	largest, tokens := uint64(0), make(map[string][]operation)
	for _, o := range before {
		if !o.unknown && o.owner != "" {
			largest = max(largest, o.reply.token)
			tokens[o.owner] = append(tokens[o.owner], o)
		}
	}
	free := true
	for _, o := range before {
		switch {
		case o.owns():
			overtaken := slices.ContainsFunc(before, func(p operation) bool {
				return p.changes() && p.call > o.ret && p.ret < written
			})
			if !overtaken {
				states = append(states, survivor(o, o.reply.token, o.ret, largest))
			}
			free = free && (o.ret >= written || r.mayBeOver(o, before))
		case o.unknown && o.lease > 0: // perhaps a grant or renewal
			if o.kind != guard {
				states = append(states, survivor(o, 0, r.crash.ended, largest))
			}
			var tried []uint64
			for _, seen := range tokens[o.contender] {
				t := seen.reply.token
				may := o.request.token == 0 || o.request.token == t
				if may && !slices.Contains(tried, t) && (seen.ret > o.call || t == newest(tokens[o.contender])) {
					tried = append(tried, t)
					states = append(states, survivor(o, t, r.crash.ended, largest))
				}
			}
		}
	}
	if free {
		states = append(states, state{largest: largest})
	}
	return states
}

func survivor(o operation, token uint64, ret instant, largest uint64) state {
	return state{
		owner: o.contender, token: token, largest: largest,
		start: ret, lease: o.lease, ends: after(o.call, o.lease), granter: o.server,
	}
}

func newest(seen []operation) (token uint64) {
	for _, o := range seen {
		token = max(token, o.reply.token)
	}
	return token
}

// mayBeOver reports whether the tenure that o shows may have ended before the crash: with its
// lease, or by a later request.
func (r *rules) mayBeOver(o operation, before []operation) bool {
	return after(o.call, o.lease) <= r.crash.ended || slices.ContainsFunc(before, func(p operation) bool {
		ends := p.kind == release || p.kind == breakUp
		return ends && (p.done || p.unknown) && p.ret > o.call
	})
}

func (o operation) owns() bool {
	return !o.unknown && (o.status == "acquired" || o.status == "renewed")
}

func (o operation) changes() bool {
	return o.owns() || !o.unknown && o.done && (o.kind == release || o.kind == breakUp)
}

func TestACrashUndoesOnlyTheLastReplies(t *testing.T) {
	// The process still ran at 1,000 ms and had ended at 1,010 ms. The next process served at 1,100
	// ms.
	const lease = 600 * time.Millisecond // of early, late, taken and inFlight
	long := func(o operation) operation { o.lease = lease; return o }
	early := long(in(600, 610, acquires("a"), granted("a", 1))) // durable
	late := long(in(980, 990, acquires("a"), granted("a", 1)))  // perhaps not durable
	released := in(985, 990, releases("a", 1), yes)
	taken := long(in(991, 999, acquires("b"), granted("b", 2)))
	shortened := in(985, 990, guards("a", 1), renewed("a", 1)) // its lease ends by 1,090 ms
	inFlight := lost(995, request{kind: acquire, contender: "a", lease: lease})
	for name, c := range map[string]struct {
		all []operation
		ok  bool
	}{
		"a durable grant is kept":                                   {[]operation{early, in(1110, 1120, asks, owned("a", 1)), long(in(1130, 1140, guards("a", 1), renewed("a", 1)))}, true},
		"a durable grant is lost":                                   {[]operation{early, in(1110, 1120, asks, free)}, false},
		"a durable grant ends with its lease":                       {[]operation{early, in(1215, 1220, asks, free)}, true},
		"a durable grant outlives its lease":                        {[]operation{early, in(1215, 1220, asks, owned("a", 1))}, false},
		"a grant is lost":                                           {[]operation{late, in(1110, 1120, asks, free), in(1130, 1140, checks(1), no)}, true},
		"a grant is lost, and returns":                              {[]operation{late, in(1110, 1120, asks, free), in(1130, 1140, checks(1), yes)}, false},
		"a renewal is lost, and the owner has its earlier lease":    {[]operation{early, shortened, in(1110, 1120, asks, owned("a", 1))}, true},
		"a renewal to a shorter lease is not lost":                  {[]operation{early, shortened, in(1110, 1120, asks, free)}, true},
		"a release is lost":                                         {[]operation{early, released, in(1110, 1120, asks, owned("a", 1)), in(1130, 1140, guards("a", 1), renewed("a", 1))}, true},
		"a durable release is lost":                                 {[]operation{early, in(620, 630, releases("a", 1), yes), in(1110, 1120, asks, owned("a", 1))}, false},
		"a release is lost, but a later grant is not":               {[]operation{early, released, taken, in(1110, 1120, asks, owned("a", 1)), in(1130, 1140, checks(2), yes)}, false},
		"a release is lost, and a later grant too":                  {[]operation{early, released, taken, in(1110, 1120, asks, owned("a", 1)), in(1130, 1140, checks(2), no)}, true},
		"granted in the recovery delay":                             {[]operation{late, in(1110, 1120, acquires("b"), granted("b", 2))}, false},
		"granted to the last owner in the recovery delay":           {[]operation{late, in(1110, 1120, acquires("a"), granted("a", 2))}, false},
		"granted before a lost lease ends":                          {[]operation{late, in(1580, 1590, acquires("b"), granted("b", 2))}, false},
		"granted after the recovery delay":                          {[]operation{late, in(1600, 1620, acquires("b"), granted("b", 2))}, true},
		"a grant without a reply in the recovery delay":             {[]operation{late, lost(1120, acquires("b")), in(1130, 1140, asks, owned("b", 2))}, false},
		"a token is repeated":                                       {[]operation{late, in(1600, 1620, acquires("b"), granted("b", 1))}, false},
		"an owner's ACQUIRE renews in the recovery delay":           {[]operation{early, in(1110, 1120, acquires("a"), renewed("a", 1))}, false},
		"an owner's ACQUIRE gets busy in the recovery delay":        {[]operation{early, in(1110, 1120, acquires("a"), busy("a", 1))}, true},
		"an owner's ACQUIRE gets busy before the crash":             {[]operation{early, in(700, 710, acquires("a"), busy("a", 1))}, false},
		"a grant is undone before the crash":                        {[]operation{late, in(991, 999, asks, free)}, false},
		"a request without a reply is granted":                      {[]operation{inFlight, in(1110, 1120, asks, owned("a", 1)), in(1130, 1140, guards("a", 1), renewed("a", 1))}, true},
		"a request without a reply has no effect":                   {[]operation{inFlight, in(1110, 1120, asks, free)}, true},
		"a request without a reply is granted twice":                {[]operation{inFlight, in(1110, 1120, asks, owned("a", 1)), in(1130, 1140, asks, owned("a", 2))}, false},
		"a contender that did not ask is the owner after the crash": {[]operation{late, in(1110, 1120, asks, owned("c", 1))}, false},
		"a grant without a reply that another read showed":          {[]operation{inFlight, in(996, 999, asks, owned("a", 1)), in(1110, 1120, asks, owned("a", 1))}, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rules{guarantees: documented["embedded async"], crash: &crash{from: 1000 * ms, ended: 1010 * ms, back: 1100 * ms}}
			r.crash.noteLeases(slices.Concat(c.all, []operation{early}))
			if judged(t, r, c.all) != c.ok {
				t.Errorf("the judge finds that the history keeps the rules: %v, want %v", !c.ok, c.ok)
			}
		})
	}
}

func TestAReleasedTenureMayReturnAfterACrash(t *testing.T) {
	all := []operation{
		in(600, 610, request{kind: acquire, contender: "a", lease: 2 * time.Second}, granted("a", 1)),
		in(985, 990, releases("a", 1), yes),
		in(991, 999, request{kind: acquire, contender: "b", lease: time.Second}, granted("b", 2)),
		in(1110, 1120, guards("a", 1), renewed("a", 1)),
	}
	r := &rules{crash: &crash{from: 1000 * ms, ended: 1010 * ms, back: 1100 * ms}}
	if wrong := r.twoOwners(all); len(wrong) > 0 {
		t.Errorf("twoOwners reports %q for an owner whose RELEASE the crash may have undone, want nothing", wrong)
	}
	all[1] = in(985, 990, checks(1), yes)
	if wrong := r.twoOwners(all); len(wrong) != 1 {
		t.Errorf("twoOwners reports %q for an owner that sent no RELEASE, want one violation", wrong)
	}
}
