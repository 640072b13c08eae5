package main

import (
	"slices"
	"strings"
	"testing"
)

// agreedAims lists the aims and their bounds. A change of an aim also needs a change here.
var agreedAims = []string{
	"1 client, a mutex each: tenures, simba-resp always / Redis appendfsync always: at least 1 ×",
	"16 clients, a mutex each: tenures, simba-resp always / Redis appendfsync always: at least 1.1 ×",
	"64 clients, a mutex each: tenures, simba-resp always / Redis appendfsync always: at least 1.1 ×",
	"256 clients, a mutex each: tenures, simba-resp always / Redis appendfsync always: at least 1.1 ×",
	"16 clients, one mutex for all: tenures, simba-resp always / Redis appendfsync always: at least 2.5 ×",
	"64 clients, one mutex for all: tenures, simba-resp always / Redis appendfsync always: at least 2.5 ×",
	"16 clients, one mutex for all: fairness of simba-resp always: at least 0.99",
	"64 clients, one mutex for all: fairness of simba-resp always: at least 0.99",
	"64 clients, a mutex each: tenures, simba-resp memory / Redis without a disk: at least 1.1 ×",
	"64 clients, a mutex each: µs of processor time of the server a tenure, simba-resp always / simba-resp memory: at most 1.7 ×",
	"pipelines of 16: acquires, simba-resp always / Redis without a disk: at least 1.5 ×",
	"pipelines of 16: acquires, simba-resp memory / Redis without a disk: at least 3 ×",
	"handoff between two servers: p99 of simba-resp on PostgreSQL: at most 20 ms",
	"a sync of 1 ms: p99 of PING: at most 2 ms",
	"a sync of 1 ms: p99 of SIMBA.CHECK: at most 2 ms",
	"a sync of 20 ms: p99 of PING: at most 2 ms",
	"a sync of 20 ms: p99 of SIMBA.CHECK: at most 2 ms",
	"three servers, 64 clients, a mutex each: tenures, simba-resp ×3 / etcd ×3: at least 3 ×",
	"three servers, 16 clients, one mutex for all: tenures, simba-resp ×3 / etcd ×3: at least 3 ×",
	"three servers, one lock: p50 in ms, simba-resp ×3 / etcd ×3: at most 1.05 ×",
	"three servers, 64 clients, a mutex each: tenures, simba-resp ×3 / ZooKeeper ×3: at least 2 ×",
	"three servers, 16 clients, one mutex for all: tenures, simba-resp ×3 / ZooKeeper ×3: at least 3 ×",
	"three servers, one lock: p50 in ms, simba-resp ×3 / ZooKeeper ×3: at most 1.05 ×",
	"three servers, 16 clients, one mutex for all: fairness of simba-resp ×3: at least 0.99",
	"three servers, kill -9 of the leader: time to the next grant, median: at most 1.8 s",
	"three servers, kill -9 of the leader: time to the next grant, p99: at most 3 s",
	"three servers, the leader hands over: longest time without a grant: at most 300 ms",
	"1,000,000 held mutexes: p99.9 of a commit in ms, while a checkpoint runs / between: at most 3 ×",
	"1,000,000 held mutexes: restart after kill -9: at most 1 s",
	"1,000,000 held mutexes: restart with a full journal: at most 2 s",
	"1,000,000 held mutexes: the files of a full journal: at most 64 MiB",
	"1,000,000 held mutexes: bytes on disk each, without the journal: at most 19",
	"1,000,000 held mutexes: bytes of memory each: at most 256",
}

func TestAimsAreTheListedOnes(t *testing.T) {
	var got []string
	for _, a := range newResults(7).aims() {
		got = append(got, a.what+": "+a.bound())
	}
	if !slices.Equal(got, agreedAims) {
		t.Errorf("the aims are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(agreedAims, "\n"))
	}
}

func TestAnAimThatWasNotMeasuredStaysInTheTable(t *testing.T) {
	for _, a := range newResults(7).aims() {
		if a.verdict() != "not measured" || a.measured() != unmeasured {
			t.Errorf("nothing was measured, but the aim %s has the figure %s and the verdict %s", a.what, a.measured(), a.verdict())
		}
	}
}

func TestAMissedAimIsMarkedInTheTable(t *testing.T) {
	for _, c := range []struct {
		most   bool
		values []float64
		want   string
	}{
		{false, []float64{0.9, 1.2, 1.1}, "met"},
		{false, []float64{0.9, 1.2, 1.09}, "**missed**"},
		{true, []float64{0.9, 1.2, 1.1}, "met"},
		{true, []float64{0.9, 1.2, 1.11}, "**missed**"},
	} {
		if got := (aim{limit: 1.1, most: c.most, values: c.values}).verdict(); got != c.want {
			t.Errorf("the verdict on %v (upper limit: %v) is %s, want %s", c.values, c.most, got, c.want)
		}
	}
}

func TestAMissedAimIsNotRoundedToItsLimit(t *testing.T) {
	for _, c := range []struct {
		value, limit float64
		want         string
	}{
		{1.0963, 1.1, "1.096"}, {1.10004, 1.1, "1.10004"}, {1.1, 1.1, "1.10"}, {1.09, 1.1, "1.09"},
		{19.04, 19, "19.04"}, {256.3, 256, "256.3"}, {10_014, 10_013, "10,014"}, {10_013, 10_013, "10,013"},
	} {
		if got := (aim{limit: c.limit, values: []float64{c.value}}).measured(); got != c.want {
			t.Errorf("%v beside the limit %v is shown as %s, want %s", c.value, c.limit, got, c.want)
		}
	}
}

func TestAnAimShowsHowManyRoundsItLacks(t *testing.T) {
	r := newResults(3)
	for round := range 2 {
		r.add(round, key{restart, always, *many}, float64(round+1))
	}
	r.add(0, key{diskBytes, always, *many}, 18)
	want := map[string]string{"restart after kill -9": "1.00 to 2.00 (2 of 3)", "bytes on disk each, without the journal": ""}
	for _, a := range r.aims() {
		_, what, _ := strings.Cut(a.what, ": ")
		if text, ok := want[what]; ok {
			if a.spread() != text {
				t.Errorf("the spread of %q is %q, want %q", a.what, a.spread(), text)
			}
			delete(want, what)
		}
	}
	if len(want) > 0 {
		t.Errorf("no aim matches %v", want)
	}
}
