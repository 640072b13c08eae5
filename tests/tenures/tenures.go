// Package tenures judges records of who owned a mutex. At no instant may there be two owners, and
// the tokens of successive tenures ascend.
//
// There are two kinds of records. Contenders note when they were surely the owner (type Log). A
// server reports what it has done (type Event).
package tenures

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// Tenure is a note of one tenure. The owner surely had the mutex from From to To. All notes of a
// mutex have times of one clock.
type Tenure struct {
	Owner    string
	Token    uint64
	From, To time.Duration
}

func (t Tenure) String() string {
	return fmt.Sprintf("%s with token %d from %v to %v", t.Owner, t.Token, t.From, t.To)
}

// Clock reads a clock that all processes of the machine share, and that nobody can set.
func Clock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}

// Log has the tenures of all contenders for a mutex. It is safe for concurrent use.
type Log struct {
	mu  sync.Mutex // guards all
	all []Tenure
}

func (l *Log) Add(t Tenure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, t)
}

// Watch checks an ownership again and again until it has ended, and adds the tenure.
func (l *Log) Watch(ownership context.Context, owner string, token uint64) {
	t := Tenure{owner, token, -1, 0}
	for {
		at := Clock() // before the check: the contender was the owner then
		if ownership.Err() != nil {
			break
		}
		if t.From < 0 {
			t.From = at
		}
		t.To = at
		time.Sleep(2 * time.Millisecond)
	}
	if t.From >= 0 {
		l.Add(t)
	}
}

// InOrder returns the tenures in the order in which they began.
func (l *Log) InOrder() []Tenure {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.SortedFunc(slices.Values(l.all), func(a, b Tenure) int { return cmp.Compare(a.From, b.From) })
}

// Owners returns how many tenures each owner has had.
func (l *Log) Owners() map[string]int {
	owners := make(map[string]int)
	for _, t := range l.InOrder() {
		owners[t.Owner]++
	}
	return owners
}

// Jain returns Jain's index of shares: 1 = they are equal, 1/n = one of n has all.
func Jain(shares map[string]int) float64 {
	var sum, squares float64
	for _, n := range shares {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(shares)) * squares)
}

// NeverTwo fails the test if two tenures overlap, or if tokens do not ascend. It returns the
// tenures in order.
func (l *Log) NeverTwo(t testing.TB) []Tenure {
	t.Helper()
	all := l.InOrder()
	for _, wrong := range append(Overlaps(all), Descents(all)...) {
		t.Error(wrong)
	}
	return all
}

// Overlaps describes the pairs of successive tenures that overlap.
func Overlaps(inOrder []Tenure) []string {
	return violations(inOrder, "two owners", func(a, b Tenure) bool { return b.From <= a.To })
}

// Descents describes the pairs of successive tenures whose tokens do not ascend.
func Descents(inOrder []Tenure) []string {
	return violations(inOrder, "the tokens do not ascend", func(a, b Tenure) bool { return b.Token <= a.Token })
}

func violations(inOrder []Tenure, what string, is func(a, b Tenure) bool) (wrong []string) {
	for i := 1; i < len(inOrder); i++ {
		if a, b := inOrder[i-1], inOrder[i]; is(a, b) {
			wrong = append(wrong, fmt.Sprintf("%s: %v, and %v", what, a, b))
		}
	}
	return wrong
}

// Moments reads the timestamps that commands of wrappers write to a file while they run: see
// tests/wrapper/worker. It returns one tenure for each token, by ascending token. A killed command
// may leave a part of a line, which does not count.
func Moments(t testing.TB, file string) (all []Tenure) {
	t.Helper()
	text, err := os.ReadFile(file)
	simbatest.Must(t, err)
	for line := range strings.Lines(string(text)) {
		var token uint64
		var at time.Duration
		var pid int
		if n, _ := fmt.Sscan(line, &at, &token, &pid); n != 3 {
			continue
		}
		i, known := slices.BinarySearchFunc(all, token, func(t Tenure, token uint64) int { return cmp.Compare(t.Token, token) })
		if !known {
			all = slices.Insert(all, i, Tenure{"the command", token, at, at})
		}
		all[i].From, all[i].To = min(all[i].From, at), max(all[i].To, at)
	}
	return all
}
