package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/tenures"
)

const (
	fewest     = 8                      // mutexes of a window; each repetition doubles their number
	contenders = 3                      // clients that contend for each mutex
	calm       = 300 * time.Millisecond // pause before the fault, and at least after it
	// How long after the recovery a window waits for enough replies. If fault and recovery took
	// longer together, the window waits as long as they took.
	extra = 5 * time.Second
	// How often to run a window, at most, until it has enough replies. A window also sleeps up to
	// that often before the fault, until a sleep shows that the machine did not stand still.
	repeats  = 5
	patience = 90 * time.Second // how long servers may take to recover
)

// window is an interval in which clients contend for new mutexes. During the window a fault begins
// and is healed, and the servers recover.
//
// A window counts only if enough replies, and enough replies to writes, come after the start of the
// fault. The window continues after the recovery until it has them, up to a limit. Also, some
// mutexes must get a new grant after the fault, since damage shows in the next tenure. The constant
// fewest is the least number of these mutexes. If the fault spares a server, enough replies must
// come before the recovery.
type window struct {
	t      *testing.T
	w      *world
	number int // the number of the run, which is part of the names of the mutexes
	rng    *rand.Rand
	longer float64 // factor for the length of faults; 1 = short form
}

// untilItCounts repeats the window until it counts, or until a judge finds a violation.
func (n *window) untilItCounts(f fault) (v verdict) {
	n.t.Helper()
	for i := range repeats {
		once, counts := n.once(f, fewest<<i) // slow replies need more clients
		if len(once.violations) > 0 || once.unknown > 0 || n.t.Failed() {
			return once
		}
		if counts {
			return once
		}
		n.t.Logf("%s: the window does not count; the test repeats it", f.name)
	}
	n.t.Errorf("%s, %s: no window had %d replies a second with %d to writes (before the recovery, if the fault spares a server) and new grants of %d mutexes",
		n.w.engine, f.name, enough, contended, fewest)
	return v
}

func (n *window) once(f fault, mutexes int) (total verdict, counts bool) {
	n.t.Helper()
	n.number++
	names := n.w.names(n.number, mutexes)
	histories := make([]history, mutexes)
	counted := make(counters, mutexes)
	var hurry atomic.Bool
	var healed atomic.Int64
	ctx, cancel := context.WithCancel(n.t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for i := range mutexes {
		begin := func(c contender) {
			c.mutex, c.history, c.counted, c.hurry, c.healed = names[i], &histories[i], &counted[i], &hurry, &healed
			c.rng = rand.New(rand.NewPCG(n.rng.Uint64(), n.rng.Uint64()))
			clients.Go(func() {
				if err := c.run(ctx); err != nil {
					n.t.Error(err)
				}
			})
		}
		for j := range contenders {
			begin(contender{id: fmt.Sprint("c", j), successor: fmt.Sprint("c", j+contenders), routes: n.w.routes, at: j % len(n.w.routes)})
		}
		if n.w.reading != nil { // with lost = mayLose, this contender only reads
			begin(contender{id: "reader", lost: mayLose, routes: []*route{n.w.reading}})
		}
	}
	for range repeats { // let the clients run without a fault
		asleep := now()
		time.Sleep(calm)
		if time.Duration(now()-asleep) < calm+writeDelay/2 {
			break // otherwise the machine stood still, and the servers with it
		}
	}

	victim := n.rng.IntN(len(n.w.servers))
	length := time.Duration(float64(800*time.Millisecond) * (1 + n.rng.Float64()) * n.longer)
	before := counted.mark()
	clients.Go(func() { // make clients hurry while there are too few replies
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			hurry.Store(!counted.since(before).suffices())
		}
	})
	parted := f.inject(n.w, victim, length, n.rng)
	back := now()
	healed.Store(back)
	n.recover(f, back)
	recovered := now()
	meanwhile := counted.since(before)
	served := meanwhile.suffices() || f.spares == nil || !f.spares(n.w)
	// A longer recovery gets more time.
	last := max(after(recovered, extra), recovered+(recovered-before.at))
	for ; !counts && now() < last; time.Sleep(10 * time.Millisecond) {
		total = verdict{rate: counted.since(before), meanwhile: meanwhile}
		counts = total.suffices() && counted.anew() >= fewest
	}
	cancel()
	clients.Wait()

	r := &rules{guarantees: n.w.rules}
	r.losses, r.absences = r.parts(f, parted, before.at, back)
	if f.ofServer && r.unwritten > 0 {
		r.crash = &crash{from: before.at, ended: n.w.killed, back: back}
		for i := range mutexes {
			r.crash.noteLeases(histories[i].operations())
		}
	}
	judging := time.Now()
	for i := range mutexes {
		var ofServers [][]tenures.Event
		for s := range n.w.servers {
			ofServers = append(ofServers, n.w.serverHistory(n.t, s, names[i]))
		}
		total.add(r.judge(n.w.engine+" "+names[i], histories[i].operations(), ofServers))
	}
	n.t.Logf("%s: %v, until the recovery %v; %d of %d mutexes granted anew; judged in %v",
		f.name, total.rate, meanwhile, counted.anew(), mutexes, time.Since(judging))
	return total, counts && served
}

// recover waits until each route leads to a server that works again, and until the recovery delay
// has ended.
func (n *window) recover(f fault, healed instant) {
	n.t.Helper()
	least, late := after(healed, calm), after(healed, patience)
	if f.ofServer && n.w.rules.unwritten > 0 {
		least = after(least, longest)
	}
	for ; ; time.Sleep(10 * time.Millisecond) {
		good := true
		for _, d := range n.w.routes {
			good = good && d.good.at.Load() > healed
		}
		good = good && (n.w.reading == nil || n.w.reading.good.at.Load() > healed)
		switch at := now(); {
		case good && at >= least:
			return
		case at > late:
			n.t.Errorf("%s, %s: no reply arrived on some route within %v after the fault was healed", n.w.engine, f.name, patience)
			return
		}
	}
}

func (v *verdict) add(o verdict) {
	v.rate.add(o.rate)
	v.meanwhile.add(o.meanwhile)
	v.lost += o.lost
	v.violations = append(v.violations, o.violations...)
	v.unknown += o.unknown
}
