package contenders

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// tenure is a tenure that a contender recorded. from and to are the times of the first and the last
// check that showed the contender as the owner.
type tenure struct {
	owner    string
	token    uint64
	from, to time.Duration // on a clock that all contenders share
}

// tenures has the recorded tenures of all contenders of a mutex. It is safe for concurrent use.
type tenures struct {
	mu  sync.Mutex // guards all
	all []tenure
}

func (l *tenures) add(t tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, t)
}

// owners returns how many contenders have owned the mutex.
func (l *tenures) owners() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := make(map[string]bool)
	for _, t := range l.all {
		known[t.owner] = true
	}
	return len(known)
}

// began is the zero of the clock that the contenders of this process share.
var began = time.Now()

// watch checks the ownership repeatedly until it has ended, and records the tenure.
func (l *tenures) watch(ownership context.Context, owner string) {
	t := tenure{owner: owner, token: client.Token(ownership), from: -1}
	for {
		at := time.Since(began) // before the check: the contender was the owner then
		if ownership.Err() != nil {
			break
		}
		if t.from < 0 {
			t.from = at
		}
		t.to = at
		time.Sleep(2 * time.Millisecond)
	}
	if t.from >= 0 {
		l.add(t)
	}
}

// neverTwo fails the test if two tenures overlap, or if tokens do not grow. It returns the tenures
// in order.
func (l *tenures) neverTwo(t testing.TB) []tenure {
	t.Helper()
	l.mu.Lock()
	all := slices.SortedFunc(slices.Values(l.all), func(a, b tenure) int { return int(a.from - b.from) })
	l.mu.Unlock()
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.from <= a.to {
			t.Errorf("two owners: %s with token %d until %v, and %s with token %d since %v", a.owner, a.token, a.to, b.owner, b.token, b.from)
		}
		if b.token <= a.token {
			t.Errorf("%s has token %d, but %s had token %d earlier", b.owner, b.token, a.owner, a.token)
		}
	}
	return all
}

// change is a record of SIMBA.HISTORY.
type change struct {
	seq          int64
	event, owner string
	token        uint64
	at           time.Duration // since 1970
}

func changes(t testing.TB, rdb *redis.Client, mutex string) []change {
	t.Helper()
	return changesSince(t, rdb, mutex, 0)
}

// changesSince returns the changes after the change with the number seq.
func changesSince(t testing.TB, rdb *redis.Client, mutex string, seq int64) []change {
	t.Helper()
	records, err := simbatest.ToRecords(rdb.Do(t.Context(), "simba.history", mutex, "count", 10_000, "since", seq).Result())
	if err != nil {
		t.Fatal(err)
	}
	var all []change
	for _, r := range records {
		all = append(all, change{
			seq: r.Number("seq"), event: r.Text("event"), owner: r.Text("owner"), token: uint64(r.Number("token")),
			at: time.Duration(r.Number("at")) * time.Millisecond,
		})
	}
	return all
}

// serverSaw compares the server's history with the recorded tenures. It fails the test if tenures
// overlap, if tokens do not grow, or if a recorded tenure is missing. It returns the number of
// tenures at the server.
func serverSaw(t testing.TB, history []change, noted []tenure) (n int) {
	t.Helper()
	var owner change // the grant of the present tenure; zero = the mutex is free
	last := uint64(0)
	seen := make(map[string]bool)
	for _, c := range history {
		switch c.event {
		case "acquired":
			if owner.event != "" {
				t.Errorf("in the history, %s acquires with token %d while %s owns the mutex with token %d", c.owner, c.token, owner.owner, owner.token)
			}
			if c.token <= last {
				t.Errorf("in the history, %s gets token %d after token %d", c.owner, c.token, last)
			}
			owner, last = c, c.token
			seen[c.owner+" "+strconv.FormatUint(c.token, 10)] = true
			n++
		case "released", "expired", "broken":
			if c.token != owner.token {
				t.Errorf("in the history, token %d of %s is %s while %s owns the mutex with token %d", c.token, c.owner, c.event, owner.owner, owner.token)
			}
			owner = change{}
		}
	}
	for _, s := range noted {
		if !seen[s.owner+" "+strconv.FormatUint(s.token, 10)] {
			t.Errorf("%s recorded a tenure with token %d, which is not in the server's history", s.owner, s.token)
		}
	}
	return n
}
