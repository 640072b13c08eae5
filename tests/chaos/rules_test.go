package chaos

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The tests in this file judge histories made by hand. Times are in milliseconds. Every lease is
// 100 ms long, unless a request has another length.

const ms = int64(time.Millisecond)

func in(call, ret int64, q request, p reply) operation {
	q.call, p.ret = call*ms, ret*ms
	if q.lease == 0 && (q.kind == acquire || q.kind == wait || q.kind == guard) {
		q.lease = 100 * time.Millisecond
	}
	return operation{q, p}
}

// lost returns an operation without a reply.
func lost(call int64, q request) operation {
	o := in(call, 0, q, reply{unknown: true})
	o.ret = never
	return o
}

func acquires(who string) request { return request{kind: acquire, contender: who} }
func waits(who string) request    { return request{kind: wait, contender: who} }
func guards(who string, token uint64) request {
	return request{kind: guard, contender: who, token: token}
}
func releases(who string, token uint64) request {
	return request{kind: release, contender: who, token: token}
}
func checks(token uint64) request { return request{kind: check, token: token} }

var (
	asks   = request{kind: owner}
	breaks = request{kind: breakUp}
	free   = reply{}
	yes    = reply{done: true}
	no     = reply{}
)

func granted(who string, token uint64) reply {
	return reply{status: "acquired", owner: who, token: token}
}
func renewed(who string, token uint64) reply {
	return reply{status: "renewed", owner: who, token: token}
}
func busy(who string, token uint64) reply   { return reply{status: "busy", owner: who, token: token} }
func goneTo(who string, token uint64) reply { return reply{status: "lost", owner: who, token: token} }
func owned(who string, token uint64) reply  { return reply{owner: who, token: token} }

// judged reports whether the judge finds an order that keeps the rules.
func judged(t *testing.T, r *rules, all []operation) bool {
	t.Helper()
	for i := range all {
		all[i].id = i + 1
	}
	result, _ := r.check(all)
	switch result {
	case porcupine.Ok:
		return true
	case porcupine.Unknown:
		t.Error("porcupine did not decide the history in time")
	}
	return false
}

func TestAWaiterMayLearnOfARenewalByItsLostRequest(t *testing.T) {
	lostBy := func(who string) operation {
		return lost(5, request{kind: acquire, contender: who, lease: 150 * time.Millisecond})
	}
	history := func(left time.Duration) []operation {
		return []operation{
			in(0, 10, acquires("b"), granted("b", 1)),
			in(20, 120, waits("a"), reply{status: "acquired", owner: "a", token: 2, left: left}),
			in(130, 131, asks, reply{owner: "a", token: 2, left: 135 * time.Millisecond}),
		}
	}
	const all = 140 * time.Millisecond
	if !judged(t, &rules{}, append(history(all), lostBy("a"))) {
		t.Error("the judge refused a reply with a lease that only a request without a reply can have set")
	}
	for name, refused := range map[string][]operation{
		"no request lacks a reply":                                                  history(all),
		"another contender sent the request without a reply":                        append(history(all), lostBy("c")),
		"the request without a reply asks for a shorter lease than the reply shows": append(history(151*time.Millisecond), lostBy("a")),
	} {
		if judged(t, &rules{}, refused) {
			t.Errorf("the judge accepted a lease that no request can have set: %s", name)
		}
	}
}

func TestAHistoryThatBreaksARuleIsRefused(t *testing.T) {
	first := in(0, 10, acquires("a"), granted("a", 1))
	for name, all := range map[string][]operation{
		"granted twice": {first, in(20, 30, acquires("b"), granted("b", 2))},
		"granted to two contenders at the same time": {first, in(0, 10, acquires("b"), granted("b", 2))},
		"granted before the lease ends":              {first, in(50, 99, acquires("b"), granted("b", 2))},
		"granted in a renewed lease":                 {first, in(50, 60, guards("a", 1), renewed("a", 1)), in(120, 140, waits("b"), granted("b", 2))},
		"a token is repeated":                        {first, in(20, 30, releases("a", 1), yes), in(40, 50, acquires("b"), granted("b", 1))},
		"a token gets smaller": {
			in(0, 10, acquires("a"), granted("a", 5)), in(20, 30, releases("a", 5), yes), in(40, 50, acquires("b"), granted("b", 4))},
		"a renewal changes the token":                                          {first, in(20, 30, acquires("a"), renewed("a", 2))},
		"a new tenure of the owner begins before its lease ends":               {first, in(20, 30, acquires("a"), granted("a", 2))},
		"a release with an old token ends a later tenure":                      {first, in(20, 30, releases("a", 1), yes), in(40, 50, acquires("a"), granted("a", 2)), in(60, 70, releases("a", 1), yes)},
		"somebody else releases":                                               {first, in(20, 30, releases("b", 1), yes)},
		"a repeated release replies 1":                                         {first, in(20, 30, releases("a", 1), yes), in(40, 50, releases("a", 1), yes)},
		"a release is lost":                                                    {first, in(20, 30, releases("a", 1), yes), in(40, 50, acquires("b"), busy("a", 1))},
		"an owner's release replies 0":                                         {first, in(20, 30, releases("a", 1), no)},
		"a guard revives a lease":                                              {first, in(111, 120, guards("a", 1), renewed("a", 1))},
		"a guard revives a lease reported as over":                             {first, in(105, 106, asks, free), in(107, 108, guards("a", 1), renewed("a", 1))},
		"a guard begins a tenure":                                              {in(0, 10, guards("a", 0), renewed("a", 1))},
		"a guard acts on another tenure":                                       {first, in(20, 30, releases("a", 1), yes), in(40, 50, acquires("a"), granted("a", 2)), in(60, 70, guards("a", 1), renewed("a", 2))},
		"an owner loses its lease":                                             {first, in(20, 30, guards("a", 1), goneTo("", 0))},
		"a lease ends early":                                                   {first, in(80, 99, asks, free)},
		"a lease does not end":                                                 {first, in(111, 120, asks, owned("a", 1))},
		"a check of a tenure that is over replies 1":                           {first, in(111, 120, checks(1), yes)},
		"a check in the lease replies 0":                                       {first, in(20, 30, checks(1), no)},
		"a check of another token replies 1":                                   {first, in(20, 30, checks(2), yes)},
		"a break of a free mutex replies 1":                                    {in(0, 10, breaks, yes)},
		"a break in the lease replies 0":                                       {first, in(20, 30, breaks, no)},
		"a break of a free mutex replies 1, after a wait that timed out":       {first, in(20, 30, releases("a", 1), yes), in(20, 40, waits("c"), reply{status: "timeout"}), in(50, 60, breaks, yes)},
		"the tenure goes on after a break":                                     {first, in(20, 30, breaks, yes), in(40, 50, checks(1), yes)},
		"the wrong owner is reported":                                          {first, in(20, 30, acquires("b"), busy("c", 1))},
		"too much time is left":                                                {first, in(20, 30, asks, reply{owner: "a", token: 1, left: 95 * time.Millisecond})},
		"too little time is left":                                              {first, in(20, 30, asks, reply{owner: "a", token: 1, left: 60 * time.Millisecond})},
		"an owner gets a longer lease than it asked for":                       {in(0, 10, acquires("a"), reply{status: "acquired", owner: "a", token: 1, left: 101 * time.Millisecond})},
		"an owner gets the reply busy in its lease":                            {first, in(20, 30, acquires("a"), busy("a", 1))},
		"a contender that never asked becomes the owner":                       {in(0, 10, asks, owned("a", 1))},
		"a request without a reply takes effect before it is sent":             {lost(20, acquires("a")), in(0, 10, asks, owned("a", 1))},
		"a request without a reply is granted in another contender's lease":    {first, lost(20, acquires("b")), in(40, 50, asks, owned("b", 2))},
		"a request without a reply is granted with a used token":               {first, in(20, 30, releases("a", 1), yes), lost(40, acquires("b")), in(50, 60, asks, owned("b", 1))},
		"a grant without a reply is taken back after its owner has renewed it": {lost(0, waits("a")), in(20, 30, acquires("a"), renewed("a", 1)), in(40, 50, asks, free)},
		"a release without a reply ends a tenure with another token":           {first, lost(20, releases("a", 2)), in(40, 50, asks, free)},
		"a guard without a reply renews a lease that is over":                  {first, lost(50, guards("a", 1)), in(215, 220, asks, owned("a", 1))},
		"a guard without a reply shortens the lease before it is sent": {
			first, lost(50, request{kind: guard, contender: "a", token: 1, lease: 10 * time.Millisecond}), in(20, 45, asks, free)},
	} {
		t.Run(name, func(t *testing.T) {
			if judged(t, &rules{}, all) {
				t.Error("the judge accepted a history that breaks the rules")
			}
		})
	}
}

func TestAHistoryThatKeepsTheRulesIsAccepted(t *testing.T) {
	first := in(0, 10, acquires("a"), granted("a", 1))
	for name, all := range map[string][]operation{
		"no operations":        {},
		"released and granted": {first, in(20, 30, releases("a", 1), yes), in(25, 40, waits("b"), granted("b", 2))},
		"granted in the instant in which the lease ends":                                {first, in(50, 100, waits("b"), granted("b", 2))},
		"reported free in the instant in which the lease ends":                          {first, in(90, 100, asks, free), in(101, 102, guards("a", 1), goneTo("", 0))},
		"renewed, and checked before the renewed lease ends":                            {first, in(110, 120, guards("a", 1), renewed("a", 1)), in(205, 209, checks(1), yes)},
		"a renewal shortens the lease":                                                  {first, in(20, 30, request{kind: guard, contender: "a", lease: 20 * time.Millisecond}, renewed("a", 1)), in(45, 50, acquires("b"), granted("b", 2))},
		"broken":                                                                        {first, in(20, 30, breaks, yes), in(30, 40, acquires("b"), granted("b", 7)), in(40, 50, guards("a", 1), goneTo("b", 7))},
		"a waiter's hidden tenure is broken before the waiter's reply":                  {first, in(20, 60, waits("c"), reply{status: "timeout"}), in(30, 40, releases("a", 1), yes), in(50, 60, breaks, yes)},
		"a waiter's hidden tenure is broken, and the waiter is granted the mutex again": {first, in(20, 60, waits("c"), granted("c", 3)), in(30, 40, releases("a", 1), yes), in(50, 60, breaks, yes)},
		"a waiter's hidden tenure expires before the waiter's reply":                    {first, in(20, 160, waits("c"), reply{status: "timeout"}), in(30, 40, releases("a", 1), yes), in(50, 60, asks, owned("c", 2)), in(155, 160, asks, free)},
		"the remaining time is reported":                                                {first, in(20, 30, asks, reply{owner: "a", token: 1, left: 80 * time.Millisecond})},
		"an ACQUIRE without a reply has no effect":                                      {lost(0, acquires("a")), in(20, 30, acquires("b"), granted("b", 1))},
		"an ACQUIRE without a reply is granted":                                         {lost(0, acquires("a")), in(20, 30, acquires("b"), busy("a", 1)), in(40, 50, checks(1), yes)},
		"an ACQUIRE without a reply is granted much later":                              {lost(0, acquires("a")), in(500, 510, asks, free), in(520, 530, asks, owned("a", 1)), in(615, 630, guards("a", 1), renewed("a", 1))},
		"another wait of the contender takes over the queue entry":                      {lost(0, waits("a")), in(20, 60, waits("a"), reply{status: "queued", owner: "a", token: 1})},
		"an ACQUIRE without a reply begins a tenure that no reply shows":                {lost(0, acquires("a")), in(120, 130, acquires("b"), granted("b", 2))},
		"an ACQUIRE without a reply renews the lease":                                   {first, lost(50, acquires("a")), in(140, 150, asks, owned("a", 1))},
		"an owner's ACQUIRE without a reply begins its next tenure":                     {first, lost(50, acquires("a")), in(140, 150, asks, owned("a", 2))},
		"a guard without a reply has no effect":                                         {first, lost(50, guards("a", 1)), in(101, 110, acquires("b"), granted("b", 2))},
		"a release without a reply takes effect later":                                  {first, lost(20, releases("a", 1)), in(40, 50, checks(1), yes), in(60, 70, acquires("b"), granted("b", 2))},
		"a break without a reply breaks the next tenure":                                {first, lost(20, breaks), in(30, 40, releases("a", 1), yes), in(50, 60, acquires("b"), granted("b", 2)), in(70, 80, asks, free)},
		"the server takes back the grant to a disconnected waiter":                      {lost(0, waits("a")), in(20, 30, asks, owned("a", 1)), in(40, 50, asks, free), in(60, 70, acquires("b"), granted("b", 2))},
		"tokens grow by more than one after a tenure that no reply shows":               {lost(0, acquires("a")), in(110, 120, acquires("a"), granted("a", 9))},
	} {
		t.Run(name, func(t *testing.T) {
			if !judged(t, &rules{}, all) {
				t.Error("the judge refused a history that keeps the rules")
			}
		})
	}
}

func TestAnEngineMayDoWhatItsDocumentsSay(t *testing.T) {
	first := in(0, 10, acquires("a"), granted("a", 1))
	stopped := []loss{{server: 0, from: 50 * ms, to: 70 * ms}}
	next := in(55, 60, acquires("b"), granted("b", 2))
	long := request{kind: guard, contender: "a", token: 1, lease: time.Second}
	short := reply{owner: "a", token: 1, left: 95 * time.Millisecond}
	renewedTwice := func(at int64) []operation {
		return []operation{
			first, lost(12, acquires("a")), in(15, 20, long, renewed("a", 1)), in(30, 40, asks, short),
			in(50, 60, long, renewed("a", 1)), in(at, at+10, asks, short),
		}
	}
	brief := reply{owner: "a", token: 1, left: 18 * time.Millisecond}
	again := rules{guarantees: guarantees{again: true}}
	requeues := rules{guarantees: guarantees{requeues: true}}
	// The wait of c gets the mutex twice, and each time its lease ends before the grant is durable.
	lostTwice := func(second int64, rest ...operation) []operation {
		return append([]operation{
			first, in(20, 30, releases("a", 1), yes), in(21, 500, waits("c"), reply{status: "timeout"}),
			in(50, 60, asks, owned("c", 2)), in(second, second+10, asks, owned("c", 3)),
		}, rest...)
	}
	for _, c := range []struct {
		name  string
		rules rules
		all   []operation
		ok    bool
	}{
		{"a lease ends when its server stops", rules{losses: stopped}, []operation{first, next}, true},
		{"a lease ends before its server stops", rules{losses: stopped}, []operation{first, in(30, 49, acquires("b"), granted("b", 2))}, false},
		{"a lease ends when another server stops", rules{losses: []loss{{server: 1, from: 50 * ms, to: 70 * ms}}}, []operation{first, next}, false},
		{"a lease that was granted after the stop ends with it", rules{losses: stopped}, []operation{in(71, 72, acquires("a"), granted("a", 1)), in(73, 80, acquires("b"), granted("b", 2))}, false},
		{"the token does not grow after the stop", rules{losses: stopped}, []operation{first, in(55, 60, acquires("b"), granted("b", 1))}, false},
		{"a lease ends 2 ms early, which is the permitted error", rules{guarantees: guarantees{early: 2 * time.Millisecond}}, []operation{first, in(90, 98, acquires("b"), granted("b", 2))}, true},
		{"a lease ends 3 ms early, more than the permitted error", rules{guarantees: guarantees{early: 2 * time.Millisecond}}, []operation{first, in(90, 97, acquires("b"), granted("b", 2))}, false},
		{"a lease ends 20 ms late, which is the permitted error", rules{guarantees: guarantees{late: 20 * time.Millisecond}}, []operation{first, in(130, 131, asks, owned("a", 1))}, true},
		{"a renewed lease has ended before the late reply to its guard", rules{guarantees: guarantees{again: true}}, []operation{first, in(20, 80, request{kind: guard, contender: "a", lease: 20 * time.Millisecond}, goneTo("", 0))}, true},
		{"a renewed lease has ended before the late reply, but the server repeats nothing", rules{}, []operation{first, in(20, 80, request{kind: guard, contender: "a", lease: 20 * time.Millisecond}, goneTo("", 0))}, false},
		{"a renewed lease has ended before a reply that is in time", rules{guarantees: guarantees{again: true}}, []operation{first, in(20, 80, guards("a", 0), goneTo("", 0))}, false},
		{"a check replies 0 so late that the lease may be over", rules{guarantees: guarantees{cautious: true}}, []operation{first, in(20, 60, checks(1), no), in(70, 80, checks(1), yes)}, true},
		{"a check replies 0 before the lease can be over", rules{guarantees: guarantees{cautious: true}}, []operation{first, in(20, 50, checks(1), no), in(70, 80, checks(1), yes)}, false},
		{"the server takes back a grant when the wait times out", rules{guarantees: guarantees{again: true}}, []operation{in(0, 60, waits("a"), reply{status: "timeout", owner: "a", token: 3}), in(70, 80, acquires("b"), granted("b", 4))}, true},
		{"the wait of the owner times out", rules{}, []operation{in(0, 60, waits("a"), reply{status: "timeout", owner: "a", token: 3}), in(70, 80, acquires("b"), granted("b", 4))}, false},
		{"the reply shows the lease of another request of the contender", rules{guarantees: guarantees{again: true}}, []operation{lost(0, request{kind: guard, contender: "a", lease: 300 * time.Millisecond}), in(1, 10, acquires("a"), reply{status: "acquired", owner: "a", token: 1, left: 290 * time.Millisecond})}, true},
		{"the reply shows more than the contender ever asked for", rules{guarantees: guarantees{again: true}}, []operation{in(0, 10, acquires("a"), reply{status: "acquired", owner: "a", token: 1, left: 290 * time.Millisecond})}, false},
		{"reported free, and renewed, after a grant without a reply", rules{guarantees: guarantees{late: 20 * time.Millisecond}}, []operation{lost(0, waits("a")), in(5, 8, asks, owned("a", 1)), in(105, 108, asks, free), in(109, 112, guards("a", 1), renewed("a", 1))}, false},
		{"the server repeats a guard after the lease has ended", rules{guarantees: guarantees{again: true}}, []operation{first, lost(50, guards("a", 1)), in(300, 310, asks, owned("a", 1))}, true},
		{"the server repeats a guard for longer than retryLimit", rules{guarantees: guarantees{again: true}}, []operation{first, lost(50, guards("a", 1)), in(15_200, 15_210, asks, owned("a", 1))}, false},
		{"one request renews twice", again, renewedTwice(110), true},
		{"one request renews twice, and a second tenure follows", again, append(renewedTwice(110)[:5], in(400, 410, acquires("a"), granted("a", 2))), true},
		{"one request renews a second time before its first lease is over", again, renewedTwice(90), false},
		{"one request renews three times before its late reply", again, []operation{
			first, in(20, 95, request{kind: guard, contender: "a", token: 1, lease: 20 * time.Millisecond}, reply{status: "renewed", owner: "a", token: 1, left: 3 * time.Millisecond}),
			in(31, 33, asks, brief), in(53, 55, asks, brief), in(75, 77, asks, brief),
		}, true},
		{"one request renews twice, but the server repeats nothing", rules{}, renewedTwice(110), false},
		{"a lease is cut short, but no request is without a reply", again, slices.Delete(renewedTwice(110), 1, 2), false},
		{"a lease is cut short before the request without a reply is sent", again, slices.Insert(slices.Delete(renewedTwice(110), 1, 2), 3, lost(45, acquires("a"))), false},
		{"a lease is cut to a length that no request has", again, []operation{
			first, lost(12, acquires("a")), in(15, 20, long, renewed("a", 1)), in(30, 40, asks, reply{owner: "a", token: 1, left: 300 * time.Millisecond}),
		}, false},
		{"one request begins two tenures", rules{guarantees: guarantees{again: true}}, []operation{lost(0, acquires("a")), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2))}, true},
		{"one request begins two tenures, but the server repeats nothing", rules{}, []operation{lost(0, acquires("a")), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2))}, false},
		{"one request begins two hidden tenures before its reply shows a third", rules{guarantees: guarantees{again: true}}, []operation{in(0, 320, acquires("a"), granted("a", 3)), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2))}, true},
		{"one request begins two hidden tenures before its reply shows another owner", rules{guarantees: guarantees{again: true}}, []operation{in(0, 320, acquires("a"), busy("b", 3)), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2)), in(250, 260, acquires("b"), granted("b", 3))}, true},
		{"one request begins two hidden tenures in the time of one lease", rules{guarantees: guarantees{again: true}}, []operation{in(0, 190, acquires("a"), busy("b", 3)), in(20, 30, asks, owned("a", 1)), in(120, 130, breaks, yes), in(140, 150, asks, owned("a", 2)), in(160, 165, breaks, yes), in(170, 180, acquires("b"), granted("b", 3))}, false},
		{"a wait begins two tenures before its reply", requeues, lostTwice(160), true},
		{"a wait begins two tenures before its reply, but the waiter does not return to the queue", rules{}, lostTwice(160), false},
		{"a wait begins its second tenure in its first lease", requeues, lostTwice(110), false},
		{"a wait begins a second tenure, and another contender gets the mutex in its lease", requeues, lostTwice(160, in(200, 220, acquires("b"), granted("b", 4))), false},
		{"a wait begins a second tenure, and another contender gets the mutex after its lease", requeues, lostTwice(160, in(210, 221, acquires("b"), granted("b", 4))), true},
		{"a waiter gets the mutex, and another contender gets it in its lease", requeues, []operation{
			in(0, 10, request{kind: acquire, contender: "a", lease: 300 * time.Millisecond}, granted("a", 1)),
			in(5, 310, waits("c"), granted("c", 2)), in(320, 330, acquires("b"), granted("b", 3)),
		}, false},
		{"a wait without a reply begins two tenures", requeues, []operation{lost(0, waits("a")), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2))}, true},
		{"an ACQUIRE without a reply begins two tenures", requeues, []operation{lost(0, acquires("a")), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2))}, false},
		{"a wait times out, and its tenure goes on", requeues, []operation{first, in(20, 100, waits("c"), reply{status: "timeout", owner: "a", token: 1}), in(30, 40, releases("a", 1), yes), in(110, 120, asks, owned("c", 2))}, false},
		{"a wait times out, and the mutex is free before its lease can end", requeues, []operation{first, in(30, 40, releases("a", 1), yes), in(20, 100, waits("c"), reply{status: "timeout"}), in(50, 60, asks, owned("c", 2)), in(110, 120, asks, free)}, false},
		{"a lease ends 21 ms late, more than the permitted error", rules{guarantees: guarantees{late: 20 * time.Millisecond}}, []operation{first, in(131, 132, asks, owned("a", 1))}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if judged(t, &c.rules, c.all) != c.ok {
				t.Errorf("the judge finds that the history keeps the rules: %v, want %v", !c.ok, c.ok)
			}
		})
	}
}

func TestALaterOperationShowsThatALeaseWasCutShort(t *testing.T) {
	w := lost(12, acquires("a"))
	lease := in(15, 20, request{kind: guard, contender: "a", token: 1, lease: time.Second}, renewed("a", 1))
	left := func(p reply) reply { p.left = 95 * time.Millisecond; return p }
	for name, c := range map[string]struct {
		seen operation
		cut  bool
	}{
		"a reply shows that the lease ends sooner":                               {in(30, 40, asks, left(owned("a", 1))), true},
		"its contender renewed the lease":                                        {in(30, 40, guards("a", 1), left(renewed("a", 1))), false},
		"another contender gets the mutex before the lease ends":                 {in(120, 130, acquires("b"), granted("b", 2)), true},
		"its contender gets the mutex again before the lease ends":               {in(120, 130, acquires("a"), granted("a", 2)), true},
		"another contender gets the mutex before even the shorter lease can end": {in(90, 100, acquires("b"), granted("b", 2)), false},
	} {
		if cutShort(lease, c.seen, w, []operation{w, lease, c.seen}) != c.cut {
			t.Errorf("%s: cutShort returns %v, want %v", name, !c.cut, c.cut)
		}
	}
}

func TestTenuresKnownToContendersMustNotOverlap(t *testing.T) {
	first := in(0, 10, acquires("a"), granted("a", 1))
	next := in(15, 20, acquires("b"), granted("b", 2))
	twice := []operation{ // to append to first and next
		in(25, 30, releases("b", 2), yes), in(35, 40, acquires("a"), granted("a", 3)), in(45, 50, acquires("b"), granted("b", 4)),
	}
	again := []operation{in(120, 130, acquires("a"), granted("a", 2)), in(140, 150, acquires("b"), granted("b", 3))}
	late := lost(-20, releases("a", 0))
	shortLease := lost(-20, request{kind: guard, contender: "a", lease: 20 * time.Millisecond})
	for i, c := range []struct {
		all   []operation
		wrong int
	}{
		{[]operation{first, in(50, 99, acquires("b"), granted("b", 2))}, 1},
		{[]operation{first, in(50, 60, guards("a", 1), renewed("a", 1)), in(80, 149, waits("b"), granted("b", 2))}, 1},
		{[]operation{first, in(50, 100, acquires("b"), granted("b", 2))}, 0},
		{[]operation{first, in(20, 30, releases("a", 1), yes), in(21, 25, acquires("b"), granted("b", 2))}, 0},
		{[]operation{first, lost(20, releases("a", 1)), in(21, 25, acquires("b"), granted("b", 2))}, 0},
		{[]operation{first, in(20, 30, breaks, yes), in(21, 25, acquires("b"), granted("b", 2))}, 0},
		{[]operation{first, in(120, 130, acquires("b"), granted("b", 1))}, 1},

		// A late request without a token acts on the tenure that its contender has when the request
		// arrives.
		{[]operation{late, first, next}, 0},
		{[]operation{in(-20, -10, releases("a", 0), no), first, next}, 1},
		{[]operation{lost(-20, releases("b", 0)), first, next}, 1},
		{[]operation{lost(-20, releases("a", 9)), first, next}, 1},
		{append([]operation{first, lost(20, releases("a", 1))}, again...), 1},
		{append([]operation{first, lost(20, releases("a", 0))}, again...), 0},
		{[]operation{first, next, lost(30, releases("a", 0))}, 1},
		// A late request takes effect at most once. It ends the tenure that its contender had when
		// it sent the request, or a later tenure.
		{append([]operation{late, first, next}, twice...), 1},
		{append([]operation{first, lost(12, releases("a", 0)), next}, twice...), 1},
		{append([]operation{late, late, first, next}, twice...), 0},
		// If a tenure was renewed, the late request that ended it arrived after the renewal.
		{[]operation{late, first, in(21, 30, guards("a", 1), renewed("a", 1)), next}, 1},
		{[]operation{late, first, in(20, 30, guards("a", 1), renewed("a", 1)), next}, 0},
		{[]operation{first, lost(11, releases("a", 0)), in(12, 14, guards("a", 1), renewed("a", 1)), next}, 0},
		{[]operation{first, lost(11, releases("a", 1)), in(12, 14, guards("a", 1), renewed("a", 1)), next}, 0},
		{[]operation{first, lost(11, releases("a", 9)), next}, 1},
		// The lease of a late request begins when the request arrives.
		{[]operation{shortLease, first, in(15, 19, acquires("b"), granted("b", 2))}, 1},
		{[]operation{shortLease, first, next}, 0},
		// A late request may arrive after the grant of a tenure, and before the contender gets the
		// reply. This holds for the next owner, too.
		{[]operation{late, in(0, 90, acquires("a"), granted("a", 1)), next}, 0},
		{[]operation{in(0, 90, acquires("a"), granted("a", 1)), next}, 1},
		{[]operation{lost(-20, releases("b", 0)), in(0, 90, acquires("a"), granted("a", 1)), next}, 1},
		{[]operation{lost(-20, releases("b", 0)), first, in(15, 100, acquires("b"), granted("b", 2)), in(30, 40, acquires("c"), granted("c", 3))}, 1},
		// Two different late requests may end the first and the second tenure.
		{append([]operation{late, shortLease, first, next}, twice...), 0},
		{append([]operation{shortLease, late, first, next}, twice...), 0},
		{append([]operation{shortLease, shortLease, first, next}, twice...), 1},
		{append([]operation{late, first, lost(11, releases("a", 1)), next}, twice...), 0},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			if wrong := (&rules{}).twoOwners(c.all); len(wrong) != c.wrong {
				t.Errorf("the judge found %d violations, want %d: %v", len(wrong), c.wrong, wrong)
			}
		})
	}
}

func TestALossEndsOnlyTenuresOfItsServer(t *testing.T) {
	here := in(0, 10, acquires("a"), granted("a", 1))
	next := in(60, 70, acquires("b"), granted("b", 2)) // at the server without a loss
	at := func(server int, o operation) operation { o.server = server; return o }
	for i, c := range []struct {
		server int // the server that lost its grants
		all    []operation
		wrong  int
	}{
		{0, []operation{here}, 0},
		{1, []operation{here}, 1},
		{1, []operation{at(1, here)}, 0},
		{0, []operation{at(1, here)}, 1},
		// Server 0 may have a queue entry of contender a. So server 0 may have granted the tenure.
		{0, []operation{in(-20, -10, acquires("a"), reply{status: "queued"}), at(1, here)}, 0},
		{0, []operation{lost(-20, acquires("a")), at(1, in(0, 10, guards("a", 1), renewed("a", 1)))}, 0},
		{0, []operation{lost(-50, acquires("a")), at(1, in(-40, -30, acquires("a"), granted("a", 0))), at(1, in(-20, -10, releases("a", 0), yes)), at(1, here)}, 0},
		// Contender a has had a tenure since it asked server 0. So server 0 has no entry of a.
		{0, []operation{in(-50, -45, acquires("a"), reply{status: "queued"}), at(1, in(-40, -30, acquires("a"), granted("a", 0))), at(1, in(-20, -10, releases("a", 0), yes)), at(1, here)}, 1},
		{0, []operation{in(-20, -10, acquires("c"), reply{status: "queued"}), at(1, here)}, 1},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := rules{losses: []loss{{c.server, 50 * ms, 70 * ms}}}
			if wrong := r.twoOwners(append(c.all, at(1-c.server, next))); len(wrong) != c.wrong {
				t.Errorf("the judge found %d violations, want %d: %v", len(wrong), c.wrong, wrong)
			}
		})
	}
}

func TestALeaseOutlivesTheBeginningOfAFaultThatLeavesItsServer(t *testing.T) {
	cut, killed := fault{name: "store blackholed", ofStore: true}, fault{name: "server killed", ofServer: true}
	long := acquires("a")
	long.lease = 20 * time.Second
	first := in(0, 10, long, granted("a", 1))
	for _, c := range []struct {
		name, engine string
		fault        fault
		victim       int
		next         operation
		ok           bool
	}{
		{"another grant although the lease outlives the contact of its server", "zookeeper", cut, 0, in(55, 5000, acquires("b"), granted("b", 2)), false},
		{"another grant as the server is killed, but the session keeps the lease", "zookeeper", killed, 0, in(55, 60, acquires("b"), granted("b", 2)), false},
		{"another grant as a server that keeps leases only in memory is killed", "embedded memory", killed, 0, in(55, 60, acquires("b"), granted("b", 2)), true},
		{"another grant although the server runs on and keeps the lease", "embedded memory", cut, 0, in(55, 5000, acquires("b"), granted("b", 2)), false},
		{"another grant as the server is killed, but the store keeps the lease", "redis", killed, 0, in(55, 60, acquires("b"), granted("b", 2)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules{guarantees: documented[c.engine]}
			r.losses, r.absences = r.parts(c.fault, []int{c.victim}, 50*ms, 2000*ms)
			if judged(t, &r, []operation{first, c.next}) != c.ok {
				t.Errorf("the judge finds that the history keeps the rules: %v, want %v", !c.ok, c.ok)
			}
		})
	}
}

func TestAnUnreachableServerIsPresumedToHaveGranted(t *testing.T) {
	presumes := guarantees{presumes: true, again: true, lingers: true}
	away := []absence{{server: 0, from: 20 * ms, to: 500 * ms}}
	killed := []absence{{server: 0, from: 20 * ms, to: 500 * ms, ended: true}}
	elsewhere := []absence{{server: 1, from: 20 * ms, to: 500 * ms}}
	at := func(server int, q request) request { q.server = server; return q }
	full := func(who string) reply { return reply{owner: who, token: 1, left: 100 * time.Millisecond} }

	refused := in(0, 60, acquires("a"), busy("b", 2)) // the server was frozen after the grant
	seen := in(20, 25, asks, owned("a", 1))
	next := in(40, 50, acquires("b"), granted("b", 2))
	waiter := in(0, 10, waits("a"), granted("a", 1))
	owner := in(0, 10, acquires("a"), granted("a", 1))
	queued := in(0, 10, request{kind: acquire, contender: "a", lease: 200 * time.Millisecond}, reply{status: "queued"})
	seenLater := in(150, 160, asks, owned("a", 2))
	grantedLater := in(400, 410, acquires("a"), granted("a", 2))
	asksAgain := in(60, 410, request{kind: acquire, contender: "a", lease: 2 * time.Second}, granted("a", 2))
	for _, c := range []struct {
		name  string
		rules rules
		all   []operation
		ok    bool
	}{
		{"a grant is reported, and then its server takes it back", rules{guarantees: presumes}, []operation{refused, seen, next}, true},
		{"a grant is reported, and then its server takes it back, but servers presume nothing", rules{guarantees: guarantees{again: true}}, []operation{refused, seen, next}, false},
		{"a grant that was taken back is reported after the next grant", rules{guarantees: presumes}, []operation{refused, next, in(55, 58, asks, owned("a", 1))}, false},
		{"a grant is reported in the lease of another contender", rules{guarantees: presumes}, []operation{in(0, 10, acquires("b"), granted("b", 1)), in(20, 60, acquires("a"), busy("b", 1)), in(30, 35, asks, owned("a", 2))}, false},
		{"a grant that was taken back is reported for longer than its lease", rules{guarantees: presumes}, []operation{in(0, 60, acquires("a"), busy("", 0)), seen, in(161, 170, asks, owned("a", 1))}, false},
		{"a grant without a reply is reported, and then its server takes it back", rules{guarantees: presumes}, []operation{lost(0, acquires("a")), seen, next}, true},
		{"a grant without a reply is reported and taken back, but servers presume nothing", rules{guarantees: guarantees{again: true}}, []operation{lost(0, acquires("a")), seen, next}, false},
		{"a queued contender is reported as the owner while its server is away", rules{guarantees: presumes, absences: away}, []operation{queued, seenLater, in(300, 310, asks, free), grantedLater}, true},
		{"a queued contender is reported as the owner while its server is away, though it asks again", rules{guarantees: presumes, absences: away}, []operation{queued, asksAgain, seenLater, in(300, 310, asks, free)}, true},
		{"a queued contender that asks again is reported as the owner, but its server is reachable", rules{guarantees: presumes, absences: elsewhere}, []operation{queued, asksAgain, seenLater, in(300, 310, asks, free)}, false},
		{"a contender without a queue entry is reported as the owner before its grant", rules{guarantees: presumes, absences: away}, []operation{asksAgain, seenLater, in(300, 310, asks, free)}, false},
		{"a queued contender is reported as the owner, but its server is reachable", rules{guarantees: presumes, absences: elsewhere}, []operation{queued, seenLater, in(300, 310, asks, free), grantedLater}, false},
		{"a queued contender is granted the reported token after another tenure", rules{guarantees: presumes, absences: away}, []operation{queued, seenLater, in(300, 305, acquires("b"), granted("b", 3)), in(306, 310, releases("b", 3), yes), grantedLater}, false},
		{"a break ends a tenure that no reply shows", rules{guarantees: presumes}, []operation{owner, in(20, 60, waits("c"), reply{status: "timeout"}), in(30, 40, releases("a", 1), yes), in(50, 60, breaks, yes)}, true},
		{"a break replies 1, but there is no tenure that it can end", rules{guarantees: presumes}, []operation{owner, in(30, 40, releases("a", 1), yes), in(50, 60, breaks, yes)}, false},

		{"a presumed grant becomes a tenure", rules{guarantees: presumes}, []operation{lost(0, waits("a")), seen, in(40, 50, acquires("a"), granted("a", 1)), in(60, 70, checks(1), yes)}, true},
		{"a presumed grant becomes a tenure after its windows", rules{guarantees: presumes}, []operation{lost(0, waits("a")), seen, in(15_200, 15_210, acquires("a"), granted("a", 1))}, false},
		{"a presumed grant becomes a tenure long after the mutex was reported free", rules{guarantees: presumes}, []operation{lost(0, waits("a")), seen, in(150, 160, asks, free), in(60_000, 60_010, acquires("a"), granted("a", 1))}, false},
		{"a presumed grant becomes a tenure when its server is back, though the mutex was reported free", rules{guarantees: presumes, absences: away}, []operation{lost(0, acquires("a")), seen, in(150, 160, asks, free), in(400, 410, acquires("a"), granted("a", 1))}, true},
		{"a presumed grant becomes a tenure when a different server is back", rules{guarantees: presumes, absences: elsewhere}, []operation{lost(0, acquires("a")), seen, in(150, 160, asks, free), in(400, 410, acquires("a"), granted("a", 1))}, false},
		{"a presumed grant becomes a tenure long after its server is back", rules{guarantees: presumes, absences: away}, []operation{lost(0, acquires("a")), seen, in(150, 160, asks, free), in(60_000, 60_010, acquires("a"), granted("a", 1))}, false},
		{"a grant that had a reply is granted again", rules{guarantees: presumes}, []operation{owner, in(40, 50, acquires("a"), granted("a", 1))}, false},
		{"a released tenure is granted again", rules{guarantees: presumes}, []operation{lost(0, waits("a")), seen, in(30, 35, releases("a", 1), yes), in(40, 50, acquires("a"), granted("a", 1))}, false},

		{"another server reports a waiter's full windows until the session of the waiter's server ends", rules{guarantees: presumes, absences: away}, []operation{waiter, in(450, 460, at(1, asks), full("a"))}, true},
		{"another server reports a waiter's tenure after the session of the waiter's server has ended", rules{guarantees: presumes, absences: away}, []operation{waiter, in(501, 510, at(1, asks), owned("a", 1))}, false},
		{"the waiter's own server reports the tenure after its windows", rules{guarantees: presumes, absences: away}, []operation{waiter, in(450, 460, asks, owned("a", 1))}, false},
		{"the next process of the waiter's own server reports full windows", rules{guarantees: presumes, absences: killed}, []operation{waiter, in(450, 460, asks, full("a"))}, true},
		{"the waiter's own server renews the lease after its windows", rules{guarantees: presumes, absences: away}, []operation{waiter, in(300, 310, guards("a", 1), renewed("a", 1))}, false},
		{"the waiter's own server releases the mutex after the windows", rules{guarantees: presumes, absences: away}, []operation{waiter, in(300, 310, releases("a", 1), yes)}, false},
		{"another server renews the lease after its windows", rules{guarantees: presumes, absences: away}, []operation{waiter, in(300, 310, at(1, guards("a", 1)), renewed("a", 1))}, false},
		{"another server renews the lease after the mutex was reported free", rules{guarantees: presumes, absences: away}, []operation{waiter, in(280, 290, asks, free), in(300, 310, at(1, guards("a", 1)), renewed("a", 1))}, false},
		{"another server renews the lease after a server without a session reported the mutex free", rules{guarantees: presumes, absences: away, losses: []loss{{server: 0, from: 250 * ms, to: 500 * ms}}}, []operation{waiter, in(280, 290, asks, free), in(300, 310, at(1, guards("a", 1)), renewed("a", 1))}, false},
		{"another server reports the tenure after the mutex was reported free", rules{guarantees: presumes, absences: away}, []operation{waiter, in(280, 290, asks, free), in(300, 310, at(1, asks), full("a"))}, false},
		{"the waiter's own server reports full windows late in the lease", rules{guarantees: presumes, absences: away}, []operation{waiter, in(90, 95, asks, full("a"))}, false},
		{"another server reports full windows late in the lease", rules{guarantees: presumes, absences: away}, []operation{waiter, in(90, 95, at(1, asks), full("a"))}, true},
		{"another server reports full windows after the lease, but the waiter's server is reachable", rules{guarantees: presumes, absences: elsewhere}, []operation{waiter, in(450, 460, at(1, asks), full("a"))}, false},
		{"another server reports full windows of an owner that did not wait", rules{guarantees: presumes, absences: away}, []operation{owner, in(450, 460, at(1, asks), full("a"))}, false},
		{"another server reports full windows of a waiter that has renewed", rules{guarantees: presumes, absences: away}, []operation{waiter, in(12, 15, guards("a", 1), renewed("a", 1)), in(450, 460, at(1, asks), full("a"))}, false},

		{"a granter that is back begins the windows of a waiter whose tenure other servers presumed", rules{guarantees: presumes, absences: away}, []operation{in(10, 510, waits("a"), granted("a", 1)), in(30, 40, at(1, asks), full("a")), in(590, 600, guards("a", 1), renewed("a", 1))}, true},
		{"another server reports an owner while the granter is away", rules{guarantees: presumes, absences: away}, []operation{owner, in(450, 460, at(1, asks), owned("a", 1))}, true},
		{"another server reports an owner although the granter is reachable", rules{guarantees: presumes, absences: elsewhere}, []operation{owner, in(450, 460, at(1, asks), owned("a", 1))}, false},
		{"the granter reports an owner after its windows", rules{guarantees: presumes, absences: away}, []operation{owner, in(450, 460, asks, owned("a", 1))}, false},
		{"a lease that another server still reports is renewed", rules{guarantees: presumes, absences: away}, []operation{owner, in(450, 460, at(1, guards("a", 1)), renewed("a", 1))}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if judged(t, &c.rules, c.all) != c.ok {
				t.Errorf("the judge finds that the history keeps the rules: %v, want %v", !c.ok, c.ok)
			}
		})
	}
}
