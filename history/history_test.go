package history

import (
	"sync"
	"testing"

	"github.com/simba-resp/simba-resp"
)

func TestKeepsTheLastEventsOnly(t *testing.T) {
	r := Ring{Limit: 1000}
	for i := range 2500 {
		forgotten := r.Push(simba.Event{Seq: simba.Seq(i + 1), Mutex: "m"})
		if want := simba.Seq(max(0, i+1-1000)); forgotten.Seq != want {
			t.Fatalf("Push of event %d dropped event %d, want %d", i+1, forgotten.Seq, want)
		}
	}
	got := r.Find(new(sync.Mutex), simba.HistoryRequest{Mutex: "m", Count: 10000})
	if len(got) != 1000 || got[0].Seq != 1501 || got[999].Seq != 2500 {
		t.Errorf("Find returned %d events from Seq %d on, want 1000 from 1501 on", len(got), got[0].Seq)
	}
}

func TestFindsTheNewestOfOneMutexSince(t *testing.T) {
	r := Ring{Limit: 10}
	for i := range 8 {
		r.Push(simba.Event{Seq: simba.Seq(i + 1), Mutex: []string{"a", "b"}[i%2]})
	}
	for _, c := range []struct {
		q    simba.HistoryRequest
		want []simba.Seq
	}{
		{simba.HistoryRequest{Mutex: "a", Count: 10}, []simba.Seq{1, 3, 5, 7}},
		{simba.HistoryRequest{Mutex: "b", Count: 2}, []simba.Seq{6, 8}},
		{simba.HistoryRequest{Mutex: "a", Count: 10, Since: 3}, []simba.Seq{5, 7}},
		{simba.HistoryRequest{Mutex: "c", Count: 10}, nil},
	} {
		got := r.Find(new(sync.Mutex), c.q)
		if len(got) != len(c.want) {
			t.Errorf("Find(%+v) returned %v, want events with the Seqs %v", c.q, got, c.want)
			continue
		}
		for i := range got {
			if got[i].Seq != c.want[i] {
				t.Errorf("Find(%+v) returned %v, want events with the Seqs %v", c.q, got, c.want)
			}
		}
	}
}

func TestZeroRingKeepsNothing(t *testing.T) {
	var r Ring
	r.Push(simba.Event{Seq: 1, Mutex: "m"})
	if got := r.Find(new(sync.Mutex), simba.HistoryRequest{Mutex: "m", Count: 1}); len(got) != 0 {
		t.Errorf("a zero Ring kept %v, want nothing", got)
	}
}
