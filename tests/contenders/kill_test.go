package contenders

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	killContenders = 50
	kills          = 50
	killTTL        = 200 * time.Millisecond
	killTransition = 200 * time.Millisecond

	// killSlack is how much later than the end of the dead owner's lease the next owns it, at
	// most, by the server's clock.
	killSlack = 100 * time.Millisecond
	// On a machine with more to do than it can, whoever is woken waits for a processor: the server when
	// the lease ends, the next when it is told, the server when it is asked, and those whose
	// packets they are. So often the longest such wait of this process is added.
	killWakings = 4
)

// TestTheNextOwnsItWhenTheLeaseOfAKilledOwnerEnds has 50 processes want one mutex, kills the owner
// 50 times, and starts another process in its place each time.
func TestTheNextOwnsItWhenTheLeaseOfAKilledOwnerEnds(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	f := newFleet(t, s, "killed")
	for range killContenders {
		f.launch()
	}
	var late []time.Duration // than the end of the lease
	for len(late) < kills {
		victim := f.owner()
		time.Sleep(rand.N(killTTL + killTransition)) // the kill comes at any time of a lease
		o, stalled := f.kill(victim)
		f.launch()
		if o.token == 0 { // it had lost the mutex: the machine is busy
			continue
		}
		next := f.acquiredAfter(o.token)
		d := next.at - o.transitionAt
		late = append(late, d)
		if d > killSlack+killWakings*stalled.longest() {
			t.Errorf("%s acquires %v after the end of the lease of %s; the machine stood still for %v", next.owner, d, victim.id, stalled.longest())
		}
	}
	for _, c := range f.all {
		c.Kill()
		c.tenures(t, &f.noted)
	}
	tenures := f.noted.neverTwo(t)
	n := serverSaw(t, changes(t, f.rdb, f.mutex), tenures)
	slices.Sort(late)
	t.Logf("%d kills, %d tenures noted, %d at the server; acquired after the end of the lease: median %v, longest %v",
		kills, len(tenures), n, late[len(late)/2], late[len(late)-1])
	if n <= kills || len(tenures) < kills {
		t.Errorf("the server saw %d tenures, the contenders %d", n, len(tenures))
	}
}

// fleet is many processes that want one mutex.
type fleet struct {
	t     *testing.T
	s     *simbatest.Server
	mutex string
	rdb   *redis.Client
	all   map[string]*contender // by id
	noted tenures
}

func newFleet(t *testing.T, s *simbatest.Server, mutex string) *fleet {
	return &fleet{t: t, s: s, mutex: mutex, rdb: connect(t, s.Addr), all: make(map[string]*contender)}
}

func (f *fleet) launch() {
	f.t.Helper()
	id := fmt.Sprint("c", len(f.all))
	f.all[id] = launch(f.t, f.s.Addr, f.mutex, id, killTTL, killTransition)
}

// owner returns the owner that knows of its tenure. (Of one whose answer came late on a busy machine
// it never does.)
func (f *fleet) owner() *contender {
	f.t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		id, o := f.ask()
		c := f.all[id]
		if c != nil && strings.Contains(c.Output(), fmt.Sprintf(" acquired %d\n", o.token)) {
			return c
		}
	}
	f.t.Fatalf("nobody owns %s", f.mutex)
	return nil
}

// ask asks the server for the present tenure.
func (f *fleet) ask() (owner string, o tenureEnd) {
	f.t.Helper()
	r, err := f.rdb.Do(f.t.Context(), "simba.owner", f.mutex).Result()
	if err == redis.Nil {
		return "", o
	}
	if err != nil {
		f.t.Fatal(err)
	}
	record := r.(map[any]any)
	return record["owner"].(string), tenureEnd{
		uint64(record["token"].(int64)), time.Duration(record["transition_at"].(int64)) * time.Millisecond,
	}
}

// tenureEnd is the end of a tenure if it is not renewed; the zero tenureEnd is that of none.
type tenureEnd struct {
	token        uint64
	transitionAt time.Duration // since 1970, by the server's clock
}

// kill kills the owner and waits for the end of its lease. It also tells how smoothly the machine ran meanwhile.
func (f *fleet) kill(victim *contender) (last tenureEnd, s *stalls) {
	f.t.Helper()
	victim.Kill()
	s = newStalls(f.t)
	for {
		owner, o := f.ask()
		if owner != victim.id {
			return last, s
		}
		last = o // its last renewal may be on its way still
		time.Sleep(10 * time.Millisecond)
	}
}

// acquiredAfter waits for the tenure after that one, and returns its begin by the server's history.
func (f *fleet) acquiredAfter(token uint64) change {
	f.t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		for _, c := range changes(f.t, f.rdb, f.mutex) {
			if c.event == "acquired" && c.token > token {
				return c
			}
		}
	}
	f.t.Fatalf("nobody acquires %s after token %d", f.mutex, token)
	return change{}
}

// stalls notes for how long the machine did not run who wanted to run: on a busy one everybody is
// late, however soon he is told.
type stalls struct {
	stop context.CancelFunc
	most chan time.Duration
}

func newStalls(t testing.TB) *stalls {
	ctx, stop := context.WithCancel(t.Context())
	s := &stalls{stop, make(chan time.Duration, 1)}
	go func() {
		const nap = time.Millisecond
		var most time.Duration
		for ctx.Err() == nil {
			before := time.Now()
			time.Sleep(nap)
			most = max(most, time.Since(before)-nap)
		}
		s.most <- most
	}()
	return s
}

// longest ends it.
func (s *stalls) longest() time.Duration {
	s.stop()
	most := <-s.most
	s.most <- most
	return most
}
