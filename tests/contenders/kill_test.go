package contenders

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

const (
	killContenders = 50
	killTTL        = 200 * time.Millisecond
	killTransition = 200 * time.Millisecond

	// killSlack bounds the time from the end of a dead owner's lease to the next tenure, by the
	// server's clock. It also bounds the time from that end to the reply to a blocked client.
	killSlack = 100 * time.Millisecond

	// killPause is the longest pause of a process on a busy machine.
	killPause = 3 * time.Second
)

// 50 processes contend for one mutex. The test repeatedly kills the owner and starts another
// process. When the lease ends, the server grants the mutex to the next waiter. So the server and
// its disk must act within killSlack.
//
// The tests in this file are not parallel, because other tests would make the machine busy.
func TestNextContenderAcquiresWhenTheLeaseOfAKilledOwnerEnds(test *testing.T) {
	t := simbatest.NewCampaign(test, "holder killed, 50 processes want it", "embedded")
	s := preferred(t)
	f := newFleet(t, s, "killed")
	for range killContenders {
		f.launch()
	}
	kills := simbatest.Count(50, 500)
	f.kills = kills
	for len(f.late) < kills {
		victim := f.owner()
		f.prefer()
		time.Sleep(rand.N(killTTL + killTransition)) // to a random time of the lease
		o := f.kill(victim)
		if o.token == 0 { // on a busy machine, the victim had lost the mutex
			f.launch()
			continue
		}
		f.takesOver(f.acquiredAfter(o), o, "")
		f.launch() // only now, since a start makes the machine busy
	}
	for _, c := range f.all {
		c.Kill()
		c.tenures(t, &f.noted)
	}
	noted := f.noted.NeverTwo(t)
	f.read()
	n := tenures.ServerSaw(t, f.history, noted)
	t.Counted(kills, "granted after transition_at: %v; %d kills repeated", f.late, f.stood)
	if n < kills || len(noted) < kills {
		t.Errorf("the server has %d tenures, the contenders have %d, want at least %d", n, len(noted), kills)
	}
}

// A client that is blocked in ACQUIRE … WAIT gets the mutex in the step that ends the lease, and
// sends no other request. Its reply must arrive within killSlack, too.
func TestBlockedWaiterAcquiresWhenTheLeaseOfAKilledOwnerEnds(test *testing.T) {
	t := simbatest.NewCampaign(test, "holder killed, a blocked client wants it", "embedded")
	s := preferred(t)
	simbatest.Prefer(t) // this process is the client
	f := newFleet(t, s, "killed")
	const waiter = "waiter"
	blocked := redis.NewClient(&redis.Options{Addr: s.Addr, ReadTimeout: simbatest.Patience})
	t.Cleanup(func() { blocked.Close() })
	f.launch()
	kills := simbatest.Count(25, 500)
	f.kills = kills
	for len(f.replied) < kills {
		victim := f.owner()
		f.prefer()
		got := make(chan reply, 1)
		go func() {
			err := blocked.Do(t.Context(), "simba.acquire", f.mutex, waiter, time.Hour.Milliseconds(), "wait", 0).Err()
			got <- reply{time.Duration(time.Now().UnixNano()), simbatest.StolenSoFar(), err}
		}()
		f.waits(waiter)
		f.launch() // the next victim queues behind the waiter
		o := f.kill(victim)
		r := <-got
		if r.err != nil {
			t.Fatal(r.err)
		}
		if o.token != 0 { // else, on a busy machine, the victim had lost the mutex
			f.takesOverAndGetsReply(f.acquiredAfter(o), o, waiter, r)
		}
		if n, err := f.rdb.Do(t.Context(), "simba.release", f.mutex, waiter).Int(); err != nil || n != 1 {
			t.Fatalf("SIMBA.RELEASE of the waiter returns %d, %v, want 1", n, err)
		}
	}
	t.Counted(kills, "granted after transition_at: %v; reply after it: %v; %d repeated", f.late, f.replied, f.stood)
}

// preferred starts a server that other processes delay as little as possible. The server has
// priority if the system permits that, and its data directory is in memory.
func preferred(t testing.TB) *simbatest.Server {
	t.Helper()
	s := simbatest.Start(t, "--data-dir", stores.Scratch(t)+"/data")
	s.Prefer(t)
	return s
}

// fleet has processes that contend for one mutex.
type fleet struct {
	t         testing.TB
	s         *simbatest.Server
	mutex     string
	rdb       *redis.Client
	all       map[string]*contender // the contenders by id
	preferred map[string]bool
	noted     tenures.Log
	history   []tenures.Event // read so far

	late    simbatest.Latencies // from the end of a dead owner's lease to the next tenure
	replied simbatest.Latencies // from that end to the reply to the blocked waiter
	stood   int                 // takeovers that do not count, since the machine may have paused
	kills   int                 // how many takeovers must count
}

func newFleet(t testing.TB, s *simbatest.Server, mutex string) *fleet {
	return &fleet{t: t, s: s, mutex: mutex, rdb: connect(t, s.Addr), all: make(map[string]*contender), preferred: make(map[string]bool)}
}

func (f *fleet) launch() {
	f.t.Helper()
	id := fmt.Sprint("c", len(f.all))
	f.all[id] = launch(f.t, f.s.Addr, f.mutex, id, killTTL, killTransition)
}

// prefer gives priority to the processes launched so far, so that processes launched later do not
// delay them.
func (f *fleet) prefer() {
	for id, c := range f.all {
		if !f.preferred[id] {
			f.preferred[id] = true
			c.Prefer()
		}
	}
}

// owner waits for an owner that has reported its tenure, and returns it. An owner whose reply is
// late never reports the tenure.
func (f *fleet) owner() (c *contender) {
	f.t.Helper()
	simbatest.Await(f.t, "a contender reports that it owns "+f.mutex, func() bool {
		id, o := f.ask()
		c = f.all[id]
		return c != nil && strings.Contains(c.Output(), fmt.Sprintf(" acquired %d\n", o.token))
	})
	return c
}

func (f *fleet) waits(contender string) {
	f.t.Helper()
	simbatest.Await(f.t, contender+" is in the queue", func() bool {
		queue, err := simbatest.ToRecords(f.rdb.Do(f.t.Context(), "simba.queue", f.mutex).Result())
		simbatest.Must(f.t, err)
		return slices.ContainsFunc(queue, func(q simbatest.Record) bool { return q["contender"] == contender })
	})
}

func (f *fleet) ask() (owner string, o tenureEnd) {
	f.t.Helper()
	r, err := simbatest.ToRecord(f.rdb.Do(f.t.Context(), "simba.owner", f.mutex).Result())
	simbatest.Must(f.t, err)
	return r.Text("owner"), tenureEnd{
		uint64(r.Number("token")), time.Duration(r.Number("transition_at")) * time.Millisecond, nil,
	}
}

// tenureEnd is the end of a tenure that nobody renews. The zero value means no tenure.
type tenureEnd struct {
	token        uint64
	transitionAt time.Duration    // since 1970, by the server's clock
	stolen       simbatest.Stolen // up to some time before the end
}

// kill kills the owner and waits for the end of its lease.
func (f *fleet) kill(victim *contender) (last tenureEnd) {
	f.t.Helper()
	victim.Kill()
	for {
		owner, o := f.ask()
		if owner != victim.id {
			return last
		}
		last = o // a last renewal may still be in flight
		last.stolen = simbatest.StolenSoFar()
		time.Sleep(10 * time.Millisecond)
	}
}

// read reads the changes since the last read, appends them to f.history, and returns them. Reading
// the whole history each time would make the machine busy.
func (f *fleet) read() []tenures.Event {
	f.t.Helper()
	seq := int64(0)
	if n := len(f.history); n > 0 {
		seq = f.history[n-1].Seq
	}
	news := changes(f.t, f.rdb, f.mutex, seq)
	f.history = append(f.history, news...)
	return news
}

// since returns the changes after the end of a lease, each with the time from that end.
func (f *fleet) since(o tenureEnd) (s []string) {
	for _, c := range f.history {
		if c.At >= o.transitionAt {
			s = append(s, fmt.Sprintf("%v: %s %s", c.At-o.transitionAt, c.Owner, c.Kind))
		}
	}
	return s
}

// reply is the reply to a blocked client.
type reply struct {
	at     time.Duration // since 1970, by the machine's clock, as at the server
	stolen simbatest.Stolen
	err    error
}

// takesOver checks the tenure next, which follows the tenure of a dead owner. It must begin in
// time, and belong to owner unless owner is "". takesOver reports whether the takeover counts.
func (f *fleet) takesOver(next tenures.Event, o tenureEnd, owner string) bool {
	f.t.Helper()
	if owner != "" && next.Owner != owner {
		f.t.Errorf("the server granted the mutex to %s, want %s; changes: %v", next.Owner, owner, f.since(o))
	}
	late := next.At - o.transitionAt
	counts := f.inTime(next.Owner+" acquires", late, simbatest.StolenSoFar(), o)
	if counts {
		f.late = append(f.late, late)
	}
	return counts
}

// takesOverAndGetsReply is takesOver for a blocked waiter. Its reply must be in time, too.
func (f *fleet) takesOverAndGetsReply(next tenures.Event, o tenureEnd, owner string, r reply) {
	f.t.Helper()
	late := r.at - o.transitionAt
	if f.takesOver(next, o, owner) && f.inTime(owner+" gets its reply", late, r.stolen, o) {
		f.replied = append(f.replied, late)
	}
}

// inTime fails the test if a takeover came later than killSlack after the end of a dead owner's
// lease. It reports whether the takeover counts.
//
// The host of a virtual machine stops the machine for a quarter of a second now and then. The
// kernel reports this as stolen time. If stolen time explains a late takeover, the takeover does
// not count, and the test repeats it. Other processes may also delay a takeover, which the kernel
// does not report. So a short test repeats takeovers that were late by less than killPause. A long
// campaign runs on a quiet machine, and does not repeat them.
func (f *fleet) inTime(what string, late time.Duration, seen simbatest.Stolen, o tenureEnd) (counts bool) {
	f.t.Helper()
	if late <= killSlack {
		return true
	}
	stolen := seen.Since(o.stolen)
	if late-stolen <= killSlack || !simbatest.Long() && late-stolen <= killPause {
		f.stood++
		f.t.Logf("%s %v after the end of a lease; the host took %v of that time, so the takeover does not count; changes: %v", what, late, stolen, f.since(o))
		if f.stood > f.kills/5 {
			f.t.Fatal("more than a fifth of the takeovers do not count: the machine pauses too often")
		}
		return false
	}
	f.t.Errorf("%s %v after the end of the lease, and the host took only %v of that time; changes: %v", what, late, stolen, f.since(o))
	return true
}

// acquiredAfter waits for the tenure after o, and returns its grant.
func (f *fleet) acquiredAfter(o tenureEnd) (grant tenures.Event) {
	f.t.Helper()
	simbatest.Await(f.t, "a contender acquires the mutex of a killed owner", func() bool {
		news := f.read()
		i := slices.IndexFunc(news, func(e tenures.Event) bool { return e.Kind == "acquired" && e.Token > o.token })
		if i >= 0 {
			grant = news[i]
		}
		return i >= 0
	})
	return grant
}
