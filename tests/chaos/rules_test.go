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
		"nobody's":                      history(all),
		"another's":                     append(history(all), lostBy("c")),
		"for less than the reply shows": append(history(151*time.Millisecond), lostBy("a")),
	} {
		if judged(t, &rules{}, refused) {
			t.Errorf("the judge accepted the reply, though the request without a reply is %s", name)
		}
	}
}

func TestAHistoryThatBreaksARuleIsRefused(t *testing.T) {
	first := in(0, 10, acquires("a"), granted("a", 1))
	for name, all := range map[string][]operation{
		"granted twice":                 {first, in(20, 30, acquires("b"), granted("b", 2))},
		"granted twice at a time":       {first, in(0, 10, acquires("b"), granted("b", 2))},
		"granted before the lease ends": {first, in(50, 99, acquires("b"), granted("b", 2))},
		"granted in a renewed lease":    {first, in(50, 60, guards("a", 1), renewed("a", 1)), in(120, 140, waits("b"), granted("b", 2))},
		"a token is repeated":           {first, in(20, 30, releases("a", 1), yes), in(40, 50, acquires("b"), granted("b", 1))},
		"a token gets smaller": {
			in(0, 10, acquires("a"), granted("a", 5)), in(20, 30, releases("a", 5), yes), in(40, 50, acquires("b"), granted("b", 4))},
		"a renewal changes the token":                     {first, in(20, 30, acquires("a"), renewed("a", 2))},
		"a renewal is taken for a new tenure":             {first, in(20, 30, acquires("a"), granted("a", 2))},
		"another tenure is released":                      {first, in(20, 30, releases("a", 1), yes), in(40, 50, acquires("a"), granted("a", 2)), in(60, 70, releases("a", 1), yes)},
		"somebody else releases":                          {first, in(20, 30, releases("b", 1), yes)},
		"a release is repeated":                           {first, in(20, 30, releases("a", 1), yes), in(40, 50, releases("a", 1), yes)},
		"a release is lost":                               {first, in(20, 30, releases("a", 1), yes), in(40, 50, acquires("b"), busy("a", 1))},
		"an owner may not release":                        {first, in(20, 30, releases("a", 1), no)},
		"a guard revives a lease":                         {first, in(111, 120, guards("a", 1), renewed("a", 1))},
		"a guard revives a lease reported as over":        {first, in(105, 106, asks, free), in(107, 108, guards("a", 1), renewed("a", 1))},
		"a guard begins a tenure":                         {in(0, 10, guards("a", 0), renewed("a", 1))},
		"a guard acts on another tenure":                  {first, in(20, 30, releases("a", 1), yes), in(40, 50, acquires("a"), granted("a", 2)), in(60, 70, guards("a", 1), renewed("a", 2))},
		"an owner loses its lease":                        {first, in(20, 30, guards("a", 1), goneTo("", 0))},
		"a lease ends early":                              {first, in(80, 99, asks, free)},
		"a lease does not end":                            {first, in(111, 120, asks, owned("a", 1))},
		"a check of a tenure that is over":                {first, in(111, 120, checks(1), yes)},
		"a check fails in the lease":                      {first, in(20, 30, checks(1), no)},
		"a check of another token":                        {first, in(20, 30, checks(2), yes)},
		"a break of a free mutex":                         {in(0, 10, breaks, yes)},
		"a break that finds nothing":                      {first, in(20, 30, breaks, no)},
		"a break of nobody beside a wait in vain before":  {first, in(20, 30, releases("a", 1), yes), in(20, 40, waits("c"), reply{status: "timeout"}), in(50, 60, breaks, yes)},
		"a break that breaks nothing":                     {first, in(20, 30, breaks, yes), in(40, 50, checks(1), yes)},
		"the wrong owner is reported":                     {first, in(20, 30, acquires("b"), busy("c", 1))},
		"too much time is left":                           {first, in(20, 30, asks, reply{owner: "a", token: 1, left: 95 * time.Millisecond})},
		"too little time is left":                         {first, in(20, 30, asks, reply{owner: "a", token: 1, left: 60 * time.Millisecond})},
		"an owner gets more than it asked for":            {in(0, 10, acquires("a"), reply{status: "acquired", owner: "a", token: 1, left: 101 * time.Millisecond})},
		"an owner is refused":                             {first, in(20, 30, acquires("a"), busy("a", 1))},
		"a tenure without anybody who asked":              {in(0, 10, asks, owned("a", 1))},
		"an unknown grant before it was asked":            {lost(20, acquires("a")), in(0, 10, asks, owned("a", 1))},
		"an unknown grant within another lease":           {first, lost(20, acquires("b")), in(40, 50, asks, owned("b", 2))},
		"an unknown grant with a used token":              {first, in(20, 30, releases("a", 1), yes), lost(40, acquires("b")), in(50, 60, asks, owned("b", 1))},
		"an unknown grant that was reported is gone":      {lost(0, waits("a")), in(20, 30, acquires("a"), renewed("a", 1)), in(40, 50, asks, free)},
		"an unknown release of another tenure":            {first, lost(20, releases("a", 2)), in(40, 50, asks, free)},
		"an unknown renewal comes when the lease is over": {first, lost(50, guards("a", 1)), in(215, 220, asks, owned("a", 1))},
		"an unknown guard does not shorten the lease before it was asked": {
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
		"nothing":                                 {},
		"released and granted":                    {first, in(20, 30, releases("a", 1), yes), in(25, 40, waits("b"), granted("b", 2))},
		"granted in the instant of the end":       {first, in(50, 100, waits("b"), granted("b", 2))},
		"reported free in the instant of the end": {first, in(90, 100, asks, free), in(101, 102, guards("a", 1), goneTo("", 0))},
		"renewed to the end":                      {first, in(110, 120, guards("a", 1), renewed("a", 1)), in(205, 209, checks(1), yes)},
		"renewed to be shorter":                   {first, in(20, 30, request{kind: guard, contender: "a", lease: 20 * time.Millisecond}, renewed("a", 1)), in(45, 50, acquires("b"), granted("b", 2))},
		"broken":                                  {first, in(20, 30, breaks, yes), in(30, 40, acquires("b"), granted("b", 7)), in(40, 50, guards("a", 1), goneTo("b", 7))},
		"broken before the waiter's reply":        {first, in(20, 60, waits("c"), reply{status: "timeout"}), in(30, 40, releases("a", 1), yes), in(50, 60, breaks, yes)},
		"broken before the waiter's reply, and granted again": {first, in(20, 60, waits("c"), granted("c", 3)), in(30, 40, releases("a", 1), yes), in(50, 60, breaks, yes)},
		"ended before the waiter's reply":                     {first, in(20, 160, waits("c"), reply{status: "timeout"}), in(30, 40, releases("a", 1), yes), in(50, 60, asks, owned("c", 2)), in(155, 160, asks, free)},
		"the remaining time is reported":                      {first, in(20, 30, asks, reply{owner: "a", token: 1, left: 80 * time.Millisecond})},
		"an unknown grant was none":                           {lost(0, acquires("a")), in(20, 30, acquires("b"), granted("b", 1))},
		"an unknown grant was one":                            {lost(0, acquires("a")), in(20, 30, acquires("b"), busy("a", 1)), in(40, 50, checks(1), yes)},
		"an unknown grant was one much later":                 {lost(0, acquires("a")), in(500, 510, asks, free), in(520, 530, asks, owned("a", 1)), in(615, 630, guards("a", 1), renewed("a", 1))},
		"a wait whose place an older one took over":           {lost(0, waits("a")), in(20, 60, waits("a"), reply{status: "queued", owner: "a", token: 1})},
		"an unknown grant ends unseen":                        {lost(0, acquires("a")), in(120, 130, acquires("b"), granted("b", 2))},
		"an unknown renewal was one":                          {first, lost(50, acquires("a")), in(140, 150, asks, owned("a", 1))},
		"an unknown renewal was a grant":                      {first, lost(50, acquires("a")), in(140, 150, asks, owned("a", 2))},
		"an unknown renewal was none":                         {first, lost(50, guards("a", 1)), in(101, 110, acquires("b"), granted("b", 2))},
		"an unknown release was one, later":                   {first, lost(20, releases("a", 1)), in(40, 50, checks(1), yes), in(60, 70, acquires("b"), granted("b", 2))},
		"an unknown break was one of the next":                {first, lost(20, breaks), in(30, 40, releases("a", 1), yes), in(50, 60, acquires("b"), granted("b", 2)), in(70, 80, asks, free)},
		"a waiter that is gone gives it back":                 {lost(0, waits("a")), in(20, 30, asks, owned("a", 1)), in(40, 50, asks, free), in(60, 70, acquires("b"), granted("b", 2))},
		"tokens of a tenure that nobody saw skip":             {lost(0, acquires("a")), in(110, 120, acquires("a"), granted("a", 9))},
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
	at := func(server int, o operation) operation { o.server = server; return o }
	long := request{kind: guard, contender: "a", token: 1, lease: time.Second}
	short := reply{owner: "a", token: 1, left: 95 * time.Millisecond}
	renewedTwice := func(at int64) []operation {
		return []operation{
			first, lost(12, acquires("a")), in(15, 20, long, renewed("a", 1)), in(30, 40, asks, short),
			in(50, 60, long, renewed("a", 1)), in(at, at+10, asks, short),
		}
	}
	again := rules{guarantees: guarantees{again: true}}
	for _, c := range []struct {
		name  string
		rules rules
		all   []operation
		ok    bool
	}{
		{"it ends with its server", rules{losses: stopped}, []operation{first, next}, true},
		{"not before that stops", rules{losses: stopped}, []operation{first, in(30, 49, acquires("b"), granted("b", 2))}, false},
		{"not with another server", rules{losses: []loss{{server: 1, from: 50 * ms, to: 70 * ms}}}, []operation{first, next}, false},
		{"not one that was granted since", rules{losses: stopped}, []operation{in(71, 72, acquires("a"), granted("a", 1)), in(73, 80, acquires("b"), granted("b", 2))}, false},
		{"but its token grows", rules{losses: stopped}, []operation{first, in(55, 60, acquires("b"), granted("b", 1))}, false},
		{"a clock of milliseconds", rules{guarantees: guarantees{early: 2 * time.Millisecond}}, []operation{first, in(90, 98, acquires("b"), granted("b", 2))}, true},
		{"a clock of milliseconds is none of more", rules{guarantees: guarantees{early: 2 * time.Millisecond}}, []operation{first, in(90, 97, acquires("b"), granted("b", 2))}, false},
		{"late", rules{guarantees: guarantees{late: 20 * time.Millisecond}}, []operation{first, in(130, 131, asks, owned("a", 1))}, true},
		{"a late answer to a renewal that ended before it", rules{guarantees: guarantees{again: true}}, []operation{first, in(20, 80, request{kind: guard, contender: "a", lease: 20 * time.Millisecond}, goneTo("", 0))}, true},
		{"not where the server repeats nothing", rules{}, []operation{first, in(20, 80, request{kind: guard, contender: "a", lease: 20 * time.Millisecond}, goneTo("", 0))}, false},
		{"not when it was in time", rules{guarantees: guarantees{again: true}}, []operation{first, in(20, 80, guards("a", 0), goneTo("", 0))}, false},
		{"a late check of a lease that may be over", rules{guarantees: guarantees{cautious: true}}, []operation{first, in(20, 60, checks(1), no), in(70, 80, checks(1), yes)}, true},
		{"a check in time", rules{guarantees: guarantees{cautious: true}}, []operation{first, in(20, 50, checks(1), no), in(70, 80, checks(1), yes)}, false},
		{"a grant that is given back as the wait ends", rules{guarantees: guarantees{again: true}}, []operation{in(0, 60, waits("a"), reply{status: "timeout", owner: "a", token: 3}), in(70, 80, acquires("b"), granted("b", 4))}, true},
		{"a wait in vain by the owner", rules{}, []operation{in(0, 60, waits("a"), reply{status: "timeout", owner: "a", token: 3}), in(70, 80, acquires("b"), granted("b", 4))}, false},
		{"the reply shows the lease of another request of the contender", rules{guarantees: guarantees{again: true}}, []operation{lost(0, request{kind: guard, contender: "a", lease: 300 * time.Millisecond}), in(1, 10, acquires("a"), reply{status: "acquired", owner: "a", token: 1, left: 290 * time.Millisecond})}, true},
		{"the reply shows more than the contender ever asked for", rules{guarantees: guarantees{again: true}}, []operation{in(0, 10, acquires("a"), reply{status: "acquired", owner: "a", token: 1, left: 290 * time.Millisecond})}, false},
		{"reported free, and renewed", rules{guarantees: guarantees{relearns: true}}, []operation{first, in(101, 103, asks, free), in(104, 106, guards("a", 1), renewed("a", 1))}, false},
		{"reported free, and renewed by a server that does not know a renewal yet", rules{guarantees: guarantees{relearns: true, late: 20 * time.Millisecond}}, []operation{first, at(1, in(20, 30, guards("a", 1), renewed("a", 1))), in(121, 125, asks, free), in(126, 140, guards("a", 1), renewed("a", 1))}, true},
		{"by its granter, which another server's reply need not show", rules{guarantees: guarantees{relearns: true, late: 20 * time.Millisecond}}, []operation{at(1, in(0, 5, acquires("a"), reply{status: "queued"})), first, in(101, 103, asks, free), in(104, 106, guards("a", 1), renewed("a", 1))}, true},
		{"reported free, then reported as owned", rules{guarantees: guarantees{relearns: true, late: 20 * time.Millisecond}}, []operation{first, in(101, 103, asks, free), in(104, 106, asks, owned("a", 1))}, false},
		{"nor if its contender had a queue entry elsewhere before its last grant", rules{guarantees: guarantees{relearns: true, late: 20 * time.Millisecond}}, []operation{at(1, in(0, 5, acquires("a"), reply{status: "queued"})), in(6, 8, acquires("a"), granted("a", 1)), in(9, 10, releases("a", 1), yes), in(11, 12, acquires("a"), granted("a", 2)), in(112, 114, asks, free), in(115, 118, guards("a", 2), renewed("a", 2))}, false},
		{"nor if it was granted without a reply", rules{guarantees: guarantees{late: 20 * time.Millisecond}}, []operation{lost(0, waits("a")), in(5, 8, asks, owned("a", 1)), in(105, 108, asks, free), in(109, 112, guards("a", 1), renewed("a", 1))}, false},
		{"granted, and renewed", rules{guarantees: guarantees{relearns: true}}, []operation{first, in(101, 103, acquires("b"), granted("b", 2)), in(104, 106, guards("a", 1), renewed("a", 1))}, false},
		{"reported free in the lease", rules{guarantees: guarantees{relearns: true}}, []operation{first, in(50, 99, asks, free)}, false},
		{"a renewal that was made anew", rules{guarantees: guarantees{again: true}}, []operation{first, lost(50, guards("a", 1)), in(300, 310, asks, owned("a", 1))}, true},
		{"one that was made anew for ever", rules{guarantees: guarantees{again: true}}, []operation{first, lost(50, guards("a", 1)), in(15_200, 15_210, asks, owned("a", 1))}, false},
		{"one request that renewed twice", again, renewedTwice(110), true},
		{"one that renewed twice, as another tenure shows", again, append(renewedTwice(110)[:5], in(400, 410, acquires("a"), granted("a", 2))), true},
		{"one that renewed a second time before its first lease was over", again, renewedTwice(90), false},
		{"one that renewed once, where the server repeats nothing", rules{}, renewedTwice(110), false},
		{"a lease cut short without a request", again, slices.Delete(renewedTwice(110), 1, 2), false},
		{"one cut short before it was asked for", again, slices.Insert(slices.Delete(renewedTwice(110), 1, 2), 3, lost(45, acquires("a"))), false},
		{"one cut to a lease that was not requested", again, []operation{
			first, lost(12, acquires("a")), in(15, 20, long, renewed("a", 1)), in(30, 40, asks, reply{owner: "a", token: 1, left: 300 * time.Millisecond}),
		}, false},
		{"one request that began two tenures", rules{guarantees: guarantees{again: true}}, []operation{lost(0, acquires("a")), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2))}, true},
		{"one request that began two elsewhere", rules{}, []operation{lost(0, acquires("a")), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2))}, false},
		{"one that was late twice before its reply", rules{guarantees: guarantees{again: true}}, []operation{in(0, 320, acquires("a"), granted("a", 3)), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2))}, true},
		{"and another client's then", rules{guarantees: guarantees{again: true}}, []operation{in(0, 320, acquires("a"), busy("b", 3)), in(20, 30, asks, owned("a", 1)), in(150, 160, asks, owned("a", 2)), in(250, 260, acquires("b"), granted("b", 3))}, true},
		{"not in the time of one", rules{guarantees: guarantees{again: true}}, []operation{in(0, 190, acquires("a"), busy("b", 3)), in(20, 30, asks, owned("a", 1)), in(120, 130, breaks, yes), in(140, 150, asks, owned("a", 2)), in(160, 165, breaks, yes), in(170, 180, acquires("b"), granted("b", 3))}, false},
		{"too late", rules{guarantees: guarantees{late: 20 * time.Millisecond}}, []operation{first, in(131, 132, asks, owned("a", 1))}, false},
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
		"a lease that is over sooner":           {in(30, 40, asks, left(owned("a", 1))), true},
		"one that its contender set anew":       {in(30, 40, guards("a", 1), left(renewed("a", 1))), false},
		"the next tenure of another":            {in(120, 130, acquires("b"), granted("b", 2)), true},
		"that of its contender":                 {in(120, 130, acquires("a"), granted("a", 2)), true},
		"that of another, sooner than it could": {in(90, 100, acquires("b"), granted("b", 2)), false},
	} {
		if cutShort(lease, c.seen, w, []operation{w, lease, c.seen}) != c.cut {
			t.Errorf("%s: cutShort returns %v", name, !c.cut)
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
		// Server 0 may have a queue entry of a. So the tenure may be one that server 0 granted.
		{0, []operation{in(-20, -10, acquires("a"), reply{status: "queued"}), at(1, here)}, 0},
		{0, []operation{lost(-20, acquires("a")), at(1, in(0, 10, guards("a", 1), renewed("a", 1)))}, 0},
		{0, []operation{lost(-50, acquires("a")), at(1, in(-40, -30, acquires("a"), granted("a", 0))), at(1, in(-20, -10, releases("a", 0), yes)), at(1, here)}, 0},
		// Server 0 has no entry of a if a has had a tenure since it asked server 0.
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

func TestTheHistoryOfAServerMustNotShowTwoTenures(t *testing.T) {
	is := func(kind string, token uint64) event { return event{kind: kind, token: token} }
	for i, c := range []struct {
		events  []event
		partial bool
		wrong   int
	}{
		{[]event{is("acquired", 1), is("queued", 0), is("released", 1), is("acquired", 2), is("expired", 2)}, false, 0},
		{[]event{is("acquired", 1), is("acquired", 2)}, false, 1},
		{[]event{is("acquired", 1), is("acquired", 2)}, true, 0},
		{[]event{is("acquired", 2), is("broken", 2), is("acquired", 2)}, true, 1},
		{[]event{is("acquired", 2), is("released", 2), is("released", 2)}, true, 1},
		{[]event{is("acquired", 1), is("acquired", 2), is("released", 1)}, false, 2},
		{[]event{is("acquired", 1), is("acquired", 2), is("released", 1)}, true, 0},
		{[]event{is("released", 1), is("acquired", 1)}, false, 2},
		{[]event{is("acquired", 1), is("released", 1), is("acquired", 1)}, true, 1},
		{[]event{is("released", 1), is("acquired", 2)}, false, 1},
		{[]event{is("released", 1), is("acquired", 2)}, true, 0},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			r := rules{guarantees: guarantees{partial: c.partial}}
			if wrong := r.overlaps(c.events); len(wrong) != c.wrong {
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
	// gives is how long after the start of the fault a server may give up its leases, in ms. The
	// fault starts at 50 ms.
	gives := int64((sessionTimeout*2/3 - contactGap) / time.Millisecond)
	for _, c := range []struct {
		name, engine string
		fault        fault
		of           int
		next         operation
		ok           bool
	}{
		{"as it begins", "zookeeper", cut, 0, in(55, 60, acquires("b"), granted("b", 2)), false},
		{"before it can be given up", "zookeeper", cut, 0, in(55, 49+gives, acquires("b"), granted("b", 2)), false},
		{"when it may be given up", "zookeeper", cut, 0, in(55, 51+gives, acquires("b"), granted("b", 2)), true},
		{"by a server that is not cut off", "zookeeper", cut, 1, in(55, 51+gives, acquires("b"), granted("b", 2)), false},
		{"after all is well again", "zookeeper", cut, 0, in(9000, 9010, acquires("b"), granted("b", 2)), true},
		{"as its server is killed", "zookeeper", killed, 0, in(55, 60, acquires("b"), granted("b", 2)), true},
		{"as its server is killed, which keeps nothing", "embedded memory", killed, 0, in(55, 60, acquires("b"), granted("b", 2)), true},
		{"as that is cut off, and keeps it", "embedded memory", cut, 0, in(55, 5000, acquires("b"), granted("b", 2)), false},
		{"as its server is killed, whose store has it", "redis", killed, 0, in(55, 60, acquires("b"), granted("b", 2)), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := rules{guarantees: documented[c.engine]}
			r.losses, r.absences = r.parts(c.fault, []int{c.of}, 50*ms, 2000*ms)
			if judged(t, &r, []operation{first, c.next}) != c.ok {
				t.Errorf("the judge finds that the history keeps the rules: %v, want %v", !c.ok, c.ok)
			}
		})
	}
}

func TestAnUnreachableServerIsPresumedToHaveGranted(t *testing.T) {
	presumes := guarantees{presumes: true, again: true, relearns: true}
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
	elsewhereRenewed := in(50, 60, at(1, guards("a", 1)), renewed("a", 1))
	for _, c := range []struct {
		name  string
		rules rules
		all   []operation
		ok    bool
	}{
		{"a request that was taken back was reported", rules{guarantees: presumes}, []operation{refused, seen, next}, true},
		{"nobody else presumes", rules{guarantees: guarantees{again: true}}, []operation{refused, seen, next}, false},
		{"it is not reported after the next owner", rules{guarantees: presumes}, []operation{refused, next, in(55, 58, asks, owned("a", 1))}, false},
		{"it does not take a lease of another", rules{guarantees: presumes}, []operation{in(0, 10, acquires("b"), granted("b", 1)), in(20, 60, acquires("a"), busy("b", 1)), in(30, 35, asks, owned("a", 2))}, false},
		{"it is not reported longer than its lease", rules{guarantees: presumes}, []operation{in(0, 60, acquires("a"), busy("", 0)), seen, in(161, 170, asks, owned("a", 1))}, false},
		{"without a reply it is taken back too", rules{guarantees: presumes}, []operation{lost(0, acquires("a")), seen, next}, true},
		{"elsewhere it is not", rules{guarantees: guarantees{again: true}}, []operation{lost(0, acquires("a")), seen, next}, false},
		{"one in the queue is taken for the owner while its server is away", rules{guarantees: presumes, absences: away}, []operation{queued, seenLater, in(300, 310, asks, free), grantedLater}, true},
		{"though it asks again meanwhile", rules{guarantees: presumes, absences: away}, []operation{queued, asksAgain, seenLater, in(300, 310, asks, free)}, true},
		{"not if its server is there", rules{guarantees: presumes, absences: elsewhere}, []operation{queued, asksAgain, seenLater, in(300, 310, asks, free)}, false},
		{"not if its first request was for the reported grant", rules{guarantees: presumes, absences: away}, []operation{asksAgain, seenLater, in(300, 310, asks, free)}, false},
		{"not one in the queue of a server that is there", rules{guarantees: presumes, absences: elsewhere}, []operation{queued, seenLater, in(300, 310, asks, free), grantedLater}, false},
		{"not after another has owned it", rules{guarantees: presumes, absences: away}, []operation{queued, seenLater, in(300, 305, acquires("b"), granted("b", 3)), in(306, 310, releases("b", 3), yes), grantedLater}, false},
		{"a break ends a tenure that no reply shows", rules{guarantees: presumes}, []operation{owner, in(20, 60, waits("c"), reply{status: "timeout"}), in(30, 40, releases("a", 1), yes), in(50, 60, breaks, yes)}, true},
		{"a break needs something to end", rules{guarantees: presumes}, []operation{owner, in(30, 40, releases("a", 1), yes), in(50, 60, breaks, yes)}, false},

		{"what was presumed comes true", rules{guarantees: presumes}, []operation{lost(0, waits("a")), seen, in(40, 50, acquires("a"), granted("a", 1)), in(60, 70, checks(1), yes)}, true},
		{"not after its windows", rules{guarantees: presumes}, []operation{lost(0, waits("a")), seen, in(15_200, 15_210, acquires("a"), granted("a", 1))}, false},
		{"not long after it was reported free", rules{guarantees: presumes}, []operation{lost(0, waits("a")), seen, in(150, 160, asks, free), in(60_000, 60_010, acquires("a"), granted("a", 1))}, false},
		{"but when its server is back, though it was reported free", rules{guarantees: presumes, absences: away}, []operation{lost(0, acquires("a")), seen, in(150, 160, asks, free), in(400, 410, acquires("a"), granted("a", 1))}, true},
		{"not when another server is", rules{guarantees: presumes, absences: elsewhere}, []operation{lost(0, acquires("a")), seen, in(150, 160, asks, free), in(400, 410, acquires("a"), granted("a", 1))}, false},
		{"not long after that", rules{guarantees: presumes, absences: away}, []operation{lost(0, acquires("a")), seen, in(150, 160, asks, free), in(60_000, 60_010, acquires("a"), granted("a", 1))}, false},
		{"a reported grant is not granted again", rules{guarantees: presumes}, []operation{owner, in(40, 50, acquires("a"), granted("a", 1))}, false},
		{"nor what was released", rules{guarantees: presumes}, []operation{lost(0, waits("a")), seen, in(30, 35, releases("a", 1), yes), in(40, 50, acquires("a"), granted("a", 1))}, false},

		{"a waiter's full windows are reported until its session ends", rules{guarantees: presumes, absences: away}, []operation{waiter, in(450, 460, at(1, asks), full("a"))}, true},
		{"not after that", rules{guarantees: presumes, absences: away}, []operation{waiter, in(501, 510, at(1, asks), owned("a", 1))}, false},
		{"not by its own server", rules{guarantees: presumes, absences: away}, []operation{waiter, in(450, 460, asks, owned("a", 1))}, false},
		{"by the one that came after that", rules{guarantees: presumes, absences: killed}, []operation{waiter, in(450, 460, asks, full("a"))}, true},
		{"its own server does not renew it after its end", rules{guarantees: presumes, absences: away}, []operation{waiter, in(300, 310, guards("a", 1), renewed("a", 1))}, false},
		{"nor release it", rules{guarantees: presumes, absences: away}, []operation{waiter, in(300, 310, releases("a", 1), yes)}, false},
		{"another server may", rules{guarantees: presumes, absences: away}, []operation{waiter, in(300, 310, at(1, guards("a", 1)), renewed("a", 1))}, true},
		{"not after it was reported free", rules{guarantees: presumes, absences: away}, []operation{waiter, in(280, 290, asks, free), in(300, 310, at(1, guards("a", 1)), renewed("a", 1))}, false},
		{"nor when that has given its session up", rules{guarantees: presumes, absences: away, losses: []loss{{server: 0, from: 250 * ms, to: 500 * ms}}}, []operation{waiter, in(280, 290, asks, free), in(300, 310, at(1, guards("a", 1)), renewed("a", 1))}, false},
		{"nor report it", rules{guarantees: presumes, absences: away}, []operation{waiter, in(280, 290, asks, free), in(300, 310, at(1, asks), full("a"))}, false},
		{"its server reports less than others", rules{guarantees: presumes, absences: away}, []operation{waiter, in(90, 95, asks, full("a"))}, false},
		{"which report all", rules{guarantees: presumes, absences: away}, []operation{waiter, in(90, 95, at(1, asks), full("a"))}, true},
		{"not when its server is there", rules{guarantees: presumes, absences: elsewhere}, []operation{waiter, in(450, 460, at(1, asks), full("a"))}, false},
		{"not those of an owner that did not wait", rules{guarantees: presumes, absences: away}, []operation{owner, in(450, 460, at(1, asks), full("a"))}, false},
		{"not once it has renewed", rules{guarantees: presumes, absences: away}, []operation{waiter, in(12, 15, guards("a", 1), renewed("a", 1)), in(450, 460, at(1, asks), full("a"))}, false},

		{"a server that is back has yet to learn of a renewal", rules{guarantees: presumes, absences: away}, []operation{owner, elsewhereRenewed, in(550, 560, guards("a", 1), renewed("a", 1))}, true},
		{"but then counts it", rules{guarantees: presumes, absences: away}, []operation{owner, elsewhereRenewed, in(601, 610, guards("a", 1), renewed("a", 1))}, false},
		{"and not of its own", rules{guarantees: presumes, absences: away}, []operation{owner, in(50, 60, guards("a", 1), renewed("a", 1)), in(550, 560, guards("a", 1), renewed("a", 1))}, false},
		{"nor when it was there", rules{guarantees: presumes, absences: elsewhere}, []operation{owner, elsewhereRenewed, in(550, 560, guards("a", 1), renewed("a", 1))}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if judged(t, &c.rules, c.all) != c.ok {
				t.Errorf("the judge finds that the history keeps the rules: %v, want %v", !c.ok, c.ok)
			}
		})
	}
}
