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
)

// The rules that a contest is judged by. Each is a subtest.
const (
	oneOwner  = "at most one owner at a time"
	ascending = "tokens ascend from tenure to tenure"
	oneToken  = "the owner and the server have one token"
	checked   = "the owner's token passes SIMBA.CHECK"
	known     = "the server's history has every tenure"
	turnsCome = "every contender gets its turns"
)

var rules = []string{oneOwner, ascending, oneToken, checked, known, turnsCome}

// tenure is what a contender noted: from and to are when it knew that it had the mutex, and when it
// began to give it up.
type tenure struct {
	owner    string
	kind     string // of contender
	untold   bool   // that the owner takes no token, and does not know of one
	killed   bool   // the owner was killed when it had it: it ends with its lease
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

// tenures collects those of all contenders for a mutex, and what breaks a rule.
type tenures struct {
	mu     sync.Mutex // guards what follows
	all    []tenure
	broken map[string][]string // by rule
	more   []string            // rules beyond those of all contests
}

func (l *tenures) add(t tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, t)
}

// breaks notes that a rule was broken.
func (l *tenures) breaks(rule, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken == nil {
		l.broken = make(map[string][]string)
	}
	l.broken[rule] = append(l.broken[rule], fmt.Sprintf(format, args...))
}

// tell has a subtest for each rule, which fails if the rule was broken.
func (l *tenures) tell(t *testing.T) {
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

// count returns how many tenures each owner had.
func (l *tenures) count() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := make(map[string]int)
	for _, t := range l.all {
		count[t.owner]++
	}
	return count
}

// enough reports whether the mutex went from one owner to another that often, and that many owners had it.
func (l *tenures) enough(changes, owners int) bool {
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

// stuck reports whether a contender did not get its turn, and has given up.
func (l *tenures) stuck() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken[turnsCome] != nil
}

// inOrder returns the tenures by their begin.
func (l *tenures) inOrder() []tenure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(slices.Values(l.all), func(a, b tenure) int { return int(a.from - b.from) })
}

// neverTwo checks that no two tenures overlap, and that each has a larger token than the one before. A server
// before a store cannot tell two tenures apart if their owner is one that takes no token, and nobody else
// was the owner in between.
func (l *tenures) neverTwo(engine string) {
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if b.from <= a.to {
			l.breaks(oneOwner, "%s with token %d until %v, %s with %d since %v", a.owner, a.token, a.to, b.owner, b.token, b.from)
		}
		if a.token == 0 && a.untold || b.token == 0 && b.untold {
			continue // nobody asked for it
		}
		unseen := engine != "embedded" && b.untold && b.owner == a.owner && b.token == a.token
		if b.token <= a.token && !unseen {
			l.breaks(ascending, "%s has token %d, and %s had %d before", b.owner, b.token, a.owner, a.token)
		}
	}
}

// history checks that, by the server's history, each tenure of a mutex ended before the next began, that
// tokens grow, and that each tenure that a contender noted is there. Servers with a store learn of others'
// tenures by and by, so that their history may lack the end of one, and before MySQL whole tenures.
func (l *tenures) history(t testing.TB, rdb *redis.Client, engine, mutex string) {
	t.Helper()
	var records []any
	seen := make(map[string]bool)
	unknown := func() (list []tenure) {
		for _, n := range l.inOrder() {
			if !seen[n.owner+" "+strconv.FormatUint(n.token, 10)] {
				list = append(list, n)
			}
		}
		return list
	}
	for end := time.Now().Add(soon); ; time.Sleep(10 * time.Millisecond) {
		var err error
		if records, err = rdb.Do(t.Context(), "simba.history", mutex, "count", 10_000).Slice(); err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if f := r.(map[any]any); f["event"] == "acquired" {
				seen[f["owner"].(string)+" "+strconv.FormatInt(f["token"].(int64), 10)] = true
			}
		}
		if engine == "mysql" || len(unknown()) == 0 || time.Now().After(end) {
			break
		}
	}
	if engine != "mysql" {
		for _, n := range unknown() {
			l.breaks(known, "%s had it with token %d, of which the server's history has nothing", n.owner, n.token)
		}
	}
	var owner string
	var present, last int64 // tokens; 0 = nobody's
	for _, r := range records {
		f := r.(map[any]any)
		token := f["token"].(int64)
		switch f["event"] {
		case "acquired":
			if present != 0 && engine == "embedded" {
				l.breaks(oneOwner, "the server has %v acquire with token %d while %s has it with %d", f["owner"], token, owner, present)
			}
			if token <= last {
				l.breaks(ascending, "the server gives %v token %d after %d", f["owner"], token, last)
			}
			owner = f["owner"].(string)
			present, last = token, token
		case "released", "expired", "broken":
			if token != present && engine == "embedded" {
				l.breaks(oneOwner, "the server has token %d of %v %v while %s has it with %d", token, f["owner"], f["event"], owner, present)
			}
			present = 0
		}
	}
}
