package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	fewest     = 8                      // mutexes of a window; twice as many with each repetition
	contenders = 3                      // for each of them
	calm       = 300 * time.Millisecond // without a fault, before it and at least after it
	// after the recovery, for enough replies; or as long as all took till then, if that is longer
	extra = 5 * time.Second
	// of a window with too few replies, and of a pause that the machine slept through
	repeats  = 5
	patience = 90 * time.Second // for servers to recover
)

// window is a time in which clients want some new mutexes, a fault is injected and healed, and the
// servers recover.
//
// It counts replies from the start of the fault to the end of the recovery and beyond, since a
// single frozen server gives none meanwhile. It goes on until there were enough replies and enough
// writes. Also, fewest mutexes must be granted anew after the fault, since damage shows in the next
// tenure. Otherwise it is repeated. If the fault spares a server, there must be enough replies
// before the end of the recovery.
type window struct {
	t      *testing.T
	w      *world
	number int // part of the names of its mutexes
	rng    *rand.Rand
	longer float64 // 1 = faults of the short form
}

// untilItCounts runs the window until it counts, and judges it each time.
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
		n.t.Logf("%s: again, that were too few", f.name)
	}
	n.t.Errorf("%s, %s: it never comes to %d operations a second, %d of them writes, or not before the recovery, or not to %d mutexes granted anew",
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
		if n.w.reading != nil { // a contender that only reads, as after too many lost writes
			begin(contender{id: "reader", lost: mayLose, routes: []*route{n.w.reading}})
		}
	}
	for range repeats { // the clients run without a fault
		asleep := now()
		time.Sleep(calm)
		if time.Duration(now()-asleep) < calm+writeDelay/2 {
			break // otherwise the machine stood still, and the servers with it
		}
	}

	victim := n.rng.IntN(len(n.w.servers))
	length := time.Duration(float64(800*time.Millisecond) * (1 + n.rng.Float64()) * n.longer)
	before := counted.mark()
	clients.Go(func() { // clients hurry while there are too few replies
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
	// a store may need long to start
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
		var ofServers [][]event
		for s := range n.w.servers {
			ofServers = append(ofServers, n.w.serverHistory(n.t, s, names[i]))
		}
		total.add(r.judge(n.w.engine+" "+names[i], histories[i].operations(), ofServers))
	}
	n.t.Logf("%s: %v, till the recovery %v, %d of %d mutexes granted since it was healed, judged in %v",
		f.name, total.rate, meanwhile, counted.anew(), mutexes, time.Since(judging))
	return total, counts && served
}

// recover waits until every route leads to a server that works again. That includes the end of a
// recovery delay.
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
			n.t.Errorf("%s, %s: %v after it was healed a server does not do its work", n.w.engine, f.name, patience)
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
