package dropin

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

// The rules of every contest.
const (
	oneOwner     = "at most one owner at a time"
	ascending    = "tokens ascend from tenure to tenure"
	oneToken     = "the owner and the server have one token"
	checked      = "the owner's token passes SIMBA.CHECK"
	known        = "the server's history has every tenure"
	inHistory    = "in the server's history, one tenure ends before the next begins"
	noStarvation = "no contender waits in vain"
)

// tenure is a contender's note of one tenure. The contender got the mutex before From, and began
// the release at To.
type tenure struct {
	tenures.Tenure
	kind      string // the contender's Go type
	tokenless bool   // the owner's scripts return no token
	killed    bool   // the test killed the owner: the tenure ends with its lease
}

// notes collects the tenures of all contenders for a mutex, and fails the test if a rule is broken.
type notes struct {
	t *testing.T

	mu     sync.Mutex // protects the fields below
	all    []tenure
	broken map[string]int // violations by rule
}

func (l *notes) add(t tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, t)
}

// breaks fails the test. It reports the first violations of each rule.
func (l *notes) breaks(rule, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken[rule]++; l.broken[rule] <= 5 {
		l.t.Errorf("broken rule: %s: %s", rule, fmt.Sprintf(format, args...))
	}
}

func (l *notes) count() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	count := make(map[string]int)
	for _, t := range l.all {
		count[t.Owner]++
	}
	return count
}

// reached reports whether the owner has changed at least changes times, and at least owners
// contenders have been the owner.
func (l *notes) reached(changes, owners int) bool {
	if len(l.count()) < owners {
		return false
	}
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		if all[i].Owner != all[i-1].Owner {
			changes--
		}
	}
	return changes <= 0
}

// starved reports whether a contender has waited too long, or another round has failed.
func (l *notes) starved() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken[noStarvation] > 0
}

func (l *notes) inOrder() []tenure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(slices.Values(l.all), func(a, b tenure) int { return int(a.From - b.From) })
}

// plain returns the tenures in order, without what only contests know.
func (l *notes) plain() (all []tenures.Tenure) {
	for _, t := range l.inOrder() {
		all = append(all, t.Tenure)
	}
	return all
}

// neverTwo checks that no two tenures overlap, and that tokens grow, with one exception. If an
// owner's scripts return no token, a server before a store cannot tell two successive tenures of
// this owner apart. They may have the same token.
func (l *notes) neverTwo(engine string) {
	for _, wrong := range tenures.Overlaps(l.plain()) {
		l.breaks(oneOwner, "%s", wrong)
	}
	all := l.inOrder()
	for i := 1; i < len(all); i++ {
		a, b := all[i-1], all[i]
		if a.Token == 0 && a.tokenless || b.Token == 0 && b.tokenless {
			continue // the contest did not read the token
		}
		unseen := engine != "embedded" && b.tokenless && b.Owner == a.Owner && b.Token == a.Token
		if b.Token <= a.Token && !unseen {
			l.breaks(ascending, "%v, and later %v", a, b)
		}
	}
}

// history checks the server's history of a mutex. Each tenure must end before the next begins,
// tokens must grow, and each noted tenure must be there. A server before a store sees the tenures
// of other clients late, so its history may lack the end of a tenure. With MySQL it may lack whole
// tenures.
func (l *notes) history(rdb *redis.Client, engine, mutex string) {
	l.t.Helper()
	complete := tenures.Gaps
	if engine == "embedded" {
		complete = tenures.Complete
	}
	var wrong []string
	var unknown []tenures.Tenure
	for end := time.Now().Add(simbatest.Patience); ; time.Sleep(10 * time.Millisecond) {
		events, err := tenures.Events(rdb.Do(l.t.Context(), "simba.history", mutex, "count", 10_000).Result())
		simbatest.Must(l.t, err)
		var seen []tenures.Tenure
		seen, wrong = tenures.InHistory(events, complete)
		if unknown = tenures.Unknown(l.plain(), seen); engine == "mysql" || len(unknown) == 0 || time.Now().After(end) {
			break
		}
	}
	for _, w := range wrong {
		l.breaks(inHistory, "%s", w)
	}
	if engine != "mysql" {
		for _, n := range unknown {
			l.breaks(known, "the server's history has no tenure of %v", n)
		}
	}
}
