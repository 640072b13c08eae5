package cli

import (
	"bytes"
	"strings"
	"testing"
)

// held returns a tenure of alice whose lease ends in transition milliseconds.
func held(transition int64) Tenure {
	return Tenure{Mutex: "m", Held: true, Owner: "alice", Token: 1, TTL: &transition, Transition: &transition}
}

func TestWhyGivesALatestTimeOnlyIfNobodyCanComeFirst(t *testing.T) {
	yes, no := true, false
	bob := Waiter{Contender: "bob", Position: 1, Kind: "blocked"}
	carol := Waiter{Contender: "carol", Position: 2, Kind: "polling"}
	poller := Waiter{Contender: "bob", Position: 1, Kind: "polling"}
	noExpiry := held(0)
	noExpiry.TTL, noExpiry.Transition = nil, nil
	for _, row := range []struct {
		name      string
		contender string
		tenure    Tenure
		waiters   []Waiter
		delay     int64
		shared    *bool
		free      int64 // -1 = never
		yours     int64 // -1 = no limit
		text      string
	}{
		{"free", "", Tenure{}, nil, 0, &yes, 0, 0, "A new contender can have it now"},
		{"free on mysql", "bob", Tenure{}, nil, 0, &no, 0, -1, "bob can have it now, unless a contender of another server comes first."},
		{"free during the recovery delay", "", Tenure{}, nil, 900, &yes, 900, 900, "A new contender can have it in 900ms at the latest."},
		{"free and reserved", "carol", Tenure{}, []Waiter{poller, carol}, 0, &yes, 0, -1, "not known: bob polls.\nThe server skips a polling waiter that it cannot notify.\nIf it has notified one, it keeps"},
		{"free, first and polling", "bob", Tenure{}, []Waiter{poller}, 0, &yes, 0, 0, "bob can have it now"},
		{"held, a new contender", "", held(5000), nil, 0, &yes, 5000, 5000, "A new contender can have it in 5.0s at the latest, unless the owner renews its lease."},
		{"held, first", "bob", held(5000), []Waiter{bob, carol}, 0, &yes, 5000, 5000, "bob can have it in 5.0s at the latest, unless the owner"},
		{"held, first and polling", "bob", held(5000), []Waiter{poller, carol}, 0, &yes, 5000, -1, "It may go to another waiter: bob polls."},
		{"held, second", "carol", held(5000), []Waiter{bob, carol}, 0, &yes, 5000, -1, "It is free in 5.0s at the latest, unless the owner renews its lease.\nbob is next."},
		{"held, behind a polling waiter", "carol", held(5000), []Waiter{poller, carol}, 0, &yes, 5000, -1, "Who is next is not known: bob polls."},
		{"held, second on mysql", "carol", held(5000), []Waiter{bob, carol}, 0, &no, 5000, -1, "It is free in 5.0s at the latest"},
		{"held, second, engine unknown", "carol", held(5000), []Waiter{bob, carol}, 0, nil, 5000, -1, "It is free in 5.0s"},
		{"held, not in the queue", "dave", held(5000), []Waiter{bob, carol}, 0, &yes, 5000, -1, "bob is next."},
		{"held, first on mysql", "bob", held(5000), []Waiter{bob}, 0, &no, 5000, -1, "It is free in 5.0s at the latest, unless the owner"},
		{"free, engine unknown", "bob", Tenure{}, nil, 0, nil, 0, -1, "bob can have it now, unless the server delays new grants"},
		{"held, engine unknown", "bob", held(5000), []Waiter{bob}, 0, nil, 5000, -1, "It is free in 5.0s"},
		{"held for ever", "bob", noExpiry, []Waiter{bob}, 0, &yes, -1, -1, "its lease has no expiry"},
		{"mine", "alice", held(5000), []Waiter{bob}, 0, &yes, 5000, 0, "alice owns it."},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := Why{Mutex: "m", Contender: row.contender, RecoveryDelay: &row.delay, SharedQueue: row.shared}
			if row.shared == nil { // the user may not send INFO
				w.RecoveryDelay = nil
			}
			w.judge(row.tenure, row.waiters)
			if got := orNever(w.FreeIn); got != row.free {
				t.Errorf("free_in_ms is %d, want %d", got, row.free)
			}
			if got := orNever(w.YoursIn); got != row.yours {
				t.Errorf("yours_in_ms is %d, want %d", got, row.yours)
			}
			var out bytes.Buffer
			if w.print(&out, "here:1"); !strings.Contains(out.String(), row.text) {
				t.Errorf("why prints\n%s\nwant %q in it", &out, row.text)
			}
			// why names no next waiter if the server may skip it, or grant to a waiter of another
			// server first.
			next := strings.Contains(row.text, "bob is next")
			if row.contender == "carol" && (w.Next != nil) != next || strings.Contains(out.String(), "bob is next") != next || next && *w.Next != "bob" {
				t.Errorf("why has the next waiter %v, and prints\n%s\nwant that bob is next: %v", w.Next, &out, next)
			}
		})
	}
}

func orNever(ms *int64) int64 {
	if ms == nil {
		return -1
	}
	return *ms
}

// The server replies with 10,000 waiters at most. The contender may be behind them.
func TestWhyCountsWaitersThatTheReplyLeftOut(t *testing.T) {
	yes := true
	tenure := held(5000)
	tenure.Waiters = 12_000
	w := Why{SharedQueue: &yes, Contender: "last"}
	w.judge(tenure, nil)
	if w.Waiters != 12_000 || w.YoursIn != nil {
		t.Errorf("judge set %+v, want waiters 12000 and no yours_in_ms", w)
	}
}
