package dropin

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The rules of every contest. Each is a subtest.
const (
	oneOwner     = "at most one owner at a time"
	ascending    = "tokens ascend from tenure to tenure"
	oneToken     = "the owner and the server have one token"
	checked      = "the owner's token passes SIMBA.CHECK"
	known        = "the server's history has every tenure"
	noStarvation = "no contender waits in vain"
)

var rules = []string{oneOwner, ascending, oneToken, checked, known, noStarvation}

// tenure is a contender's note of one tenure. The contender got the mutex before from, and began
// the release at to.
type tenure struct {
	owner     string
	kind      string // the contender's Go type
	tokenless bool   // the owner's scripts return no token
	killed    bool   // the test killed the owner: the tenure ends with its lease
	token     uint64
	from, to  time.Duration // readings of clock
}

// clock reads a clock that all processes of the machine share.
func clock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// tenures collects the tenures of all contenders for a mutex, and the violations of rules.
type tenures struct {
	mu     sync.Mutex // protects all fields
	all    []tenure
	broken map[string][]string // descriptions of violations, by rule
	more   []string            // rules beyond the common ones
}

func (l *tenures) add(t tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, t)
}

// breaks notes a violation of a rule.
func (l *tenures) breaks(rule, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = make(map[string][]string)
	}
	l.broken[rule] = append(l.broken[rule], fmt.Sprintf(format, args...))
}

func (l *tenures) report(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rule := range slices.Concat(rules, l.more) {
		t.Run(rule, func(t *testing.T) {
			for i, what := range l.broken[rule] {
				if i == 5 {
					t.Errorf("and %d more", len(l.broken[rule])-i)
					break
				}
				t.Error(what)
			}
		})
	}
}

func (l *tenures) count() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := make(map[string]int)
	for _, t := range l.all {
		count[t.owner]++
	}
	return count
}

// reached reports whether the owner has changed at least changes times, and at least owners
// contenders have been the owner.
func (l *tenures) reached(changes, owners int) bool {
	if len(l.count()) < owners {
		return false
	}
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		if all[i].owner != all[i-1].owner {
			changes--
		}
	}
	return changes <= 0
}

// starved reports whether a contender has waited too long, or another round has failed.
func (l *tenures) starved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken[noStarvation] != nil
}

func (l *tenures) inOrder() []tenure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(slices.Values(l.all), func(a, b tenure) int { return int(a.from - b.from) })
}

// neverTwo checks that no two tenures overlap, and that tokens grow, with one exception. If an
// owner's scripts return no token, a server before a store cannot tell two successive tenures of
// this owner apart. They may have the same token.
func (l *tenures) neverTwo(engine string) {
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.from <= a.to {
			l.breaks(oneOwner, "%s has the mutex with token %d until %v, and %s with token %d since %v", a.owner, a.token, a.to, b.owner, b.token, b.from)
		}
		if a.token == 0 && a.tokenless || b.token == 0 && b.tokenless {
			continue // the contest did not read the token
		}
		unseen := engine != "embedded" && b.tokenless && b.owner == a.owner && b.token == a.token
		if b.token <= a.token && !unseen {
			l.breaks(ascending, "%s has token %d, but %s had token %d earlier", b.owner, b.token, a.owner, a.token)
		}
	}
}

// history checks the server's history of a mutex. Each tenure must end before the next begins,
// tokens must grow, and each noted tenure must be there. A server before a store sees the tenures
// of other clients late, so its history may lack the end of a tenure. With MySQL it may lack whole
// tenures.
func (l *tenures) history(t testing.TB, rdb *redis.Client, engine, mutex string) {
	t.Helper()
	var records []simbatest.Record
	seen := make(map[string]bool)
	unknown := func() (list []tenure) {
		for _, n := range l.inOrder() {
			if !seen[n.owner+" "+strconv.FormatUint(n.token, 10)] {
				list = append(list, n)
			}
		}
		return list
	}
	for end := time.Now().Add(simbatest.Patience); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if records, err = simbatest.ToRecords(rdb.Do(t.Context(), "simba.history", mutex, "count", 10_000).Result()); err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if r["event"] == "acquired" {
				seen[r.Text("owner")+" "+strconv.FormatInt(r.Number("token"), 10)] = true
			}
		}
		if engine == "mysql" || len(unknown()) == 0 || time.Now().After(end) {
			break
		}
	}
	if engine != "mysql" {
		for _, n := range unknown() {
			l.breaks(known, "the server's history has no tenure of %s with token %d", n.owner, n.token)
		}
	}
	var owner string
	var present, last int64 // tokens; 0 = no owner
	for _, r := range records {
		token := r.Number("token")
		switch r["event"] {
		case "acquired":
			if present != 0 && engine == "embedded" {
				l.breaks(oneOwner, "in the history, %v acquires with token %d while %s owns the mutex with token %d", r["owner"], token, owner, present)
			}
			if token <= last {
				l.breaks(ascending, "in the history, %v gets token %d after token %d", r["owner"], token, last)
			}
			owner = r.Text("owner")
			present, last = token, token
		case "released", "expired", "broken":
			if token != present && engine == "embedded" {
				l.breaks(oneOwner, "in the history, token %d of %v is %v while %s owns the mutex with token %d", token, r["owner"], r["event"], owner, present)
			}
			present = 0
		}
	}
}
