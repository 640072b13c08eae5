package dropin

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// tenure is what a contender noted: from and to are when it knew that it had the mutex, and when it
// began to give it up.
type tenure struct {
	owner    string
	token    uint64
	from, to time.Duration // by clock
}

// clock is the same for all processes of the machine.
func clock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// tenures collects those of all contenders for a mutex.
type tenures struct {
	mu  sync.Mutex // guards all
	all []tenure
}

func (l *tenures) add(t tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, t)
}

// neverTwo checks that no two tenures overlap, that each has a larger token than the one before, and
// that the server knows them all and saw no two at a time either. It returns how many each owner had.
func (l *tenures) neverTwo(t testing.TB, rdb *redis.Client, mutex string) map[string]int {
	t.Helper()
	l.mu.Lock()
	all := slices.SortedFunc(slices.Values(l.all), func(a, b tenure) int { return int(a.from - b.from) })
	l.mu.Unlock()
	count := make(map[string]int)
	for i, b := range all {
		count[b.owner]++
		if i == 0 {
			continue
		}
		a := all[i-1]
		if b.from <= a.to {
			t.Errorf("two owners: %s with token %d until %v, %s with %d since %v", a.owner, a.token, a.to, b.owner, b.token, b.from)
		}
		if b.token <= a.token {
			t.Errorf("%s has token %d, and %s had %d before", b.owner, b.token, a.owner, a.token)
		}
	}
	seen := history(t, rdb, mutex)
	for _, n := range all {
		if !seen[n.owner+" "+strconv.FormatUint(n.token, 10)] {
			t.Errorf("%s had it with token %d, of which the server's history has nothing", n.owner, n.token)
		}
	}
	return count
}

// history checks that, by the server's history, each tenure of a mutex ended before the next began, and
// that tokens grow. It returns the owners with their tokens.
func history(t testing.TB, rdb *redis.Client, mutex string) map[string]bool {
	t.Helper()
	records, err := rdb.Do(t.Context(), "simba.history", mutex, "count", 10_000).Slice()
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	var owner string
	var present, last int64 // tokens; 0 = nobody's
	for _, r := range records {
		f := r.(map[any]any)
		token := f["token"].(int64)
		switch f["event"] {
		case "acquired":
			if present != 0 {
				t.Errorf("the server has %v acquire with token %d while %s has it with %d", f["owner"], token, owner, present)
			}
			if token <= last {
				t.Errorf("the server gives %v token %d after %d", f["owner"], token, last)
			}
			owner = f["owner"].(string)
			present, last = token, token
			seen[owner+" "+strconv.FormatInt(token, 10)] = true
		case "released", "expired", "broken":
			if token != present {
				t.Errorf("the server has token %d of %v %v while %s has it with %d", token, f["owner"], f["event"], owner, present)
			}
			present = 0
		}
	}
	return seen
}
