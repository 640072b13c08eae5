package proxy

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

var (
	firstSeed = flag.Uint64("from", 1, "the first seed of TestEngineSimulation")
	seedCount = flag.Uint64("seeds", 60, "the number of seeds of TestEngineSimulation")
)

// Servers share a store that loses, delays and repeats requests and replies, that goes away, and
// that is demoted. Some clients disconnect. At no instant are there two owners, tokens grow, and
// histories are in order. When the faults have ended, each waiter gets the mutex, and no lease is
// left of a client that is gone.
func TestEngineSimulation(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seedCount; seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

const (
	faultTime = 40 * time.Second
	longLease = 30 * time.Minute // no lease of a client that is gone may last that long
)

type simulation struct {
	*testing.T
	data    *memory
	servers []*Engine
	start   time.Time

	mu      sync.Mutex // guards tenures
	tenures map[string][]tenures.Tenure
}

func simulate(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &simulation{T: t, data: newMemory(), start: time.Now(), tenures: map[string][]tenures.Tenure{}}
	w.data.announce = seed%2 == 0
	for range 1 + rng.IntN(3) {
		w.servers = append(w.servers, engineOn(t, w.data, func(o *Options) {
			if !w.data.announce {
				o.Poll = 100 * time.Millisecond
			}
		}))
	}
	w.data.set(func() { w.data.faults = &faults{rng: rand.New(rand.NewPCG(seed, 8)), rate: rng.IntN(30)} })
	end := time.Now().Add(faultTime)
	var clients sync.WaitGroup
	mutexes := []string{"m", "n"}[:1+rng.IntN(2)]
	for i := range 2 + rng.IntN(8) {
		c := &client{
			simulation: w, rng: rand.New(rand.NewPCG(seed, uint64(100+i))), id: fmt.Sprint("c", i),
			mutex: mutexes[i%len(mutexes)],
		}
		clients.Go(func() { c.live(end) })
	}
	for time.Now().Before(end) {
		time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
		w.breakStore(rng, mutexes)
	}
	w.data.set(func() { w.data.faults = nil })
	clients.Wait()
	time.Sleep(10 * time.Second) // the servers notice that the store is back
	w.everyWaiterIsServed(mutexes)
	w.nothingIsLeft(mutexes)
	w.judge()
}

// breakStore begins an outage, or locks a mutex for a while.
func (w *simulation) breakStore(rng *rand.Rand, mutexes []string) {
	d := time.Duration(rng.IntN(5000)) * time.Millisecond
	w.data.mu.Lock()
	defer w.data.mu.Unlock()
	if rng.IntN(3) > 0 {
		f := w.data.faults
		f.mu.Lock()
		defer f.mu.Unlock()
		f.until, f.demoted = time.Now().Add(d), rng.IntN(2) == 0
		return
	}
	if mutex := mutexes[rng.IntN(len(mutexes))]; w.data.locked[mutex] == nil {
		w.data.lockLocked(mutex, d)
	}
}

// client is one contender. It asks any server, and repeats a request that has failed.
type client struct {
	*simulation
	rng    *rand.Rand
	id     string
	mutex  string
	lives  int
	ttl    time.Duration // a late renewal by an earlier request has the same windows
	server *Engine
}

func (c *client) ms(n int) time.Duration { return time.Duration(c.rng.IntN(n)) * time.Millisecond }

func (c *client) live(end time.Time) {
	c.ttl = c.ms(4000) + 200*time.Millisecond
	for time.Now().Before(end) {
		time.Sleep(c.ms(500))
		c.server = c.servers[c.rng.IntN(len(c.servers))]
		r := simba.AcquireRequest{Mutex: c.mutex, Contender: fmt.Sprint(c.id, "-", c.lives), TTL: c.ttl, Transition: c.ttl / 8}
		r.NoQueue = c.rng.IntN(3) == 0
		o, gone, err := c.acquire(r)
		switch {
		case gone:
			c.lives++ // another contender follows
		case err == nil && (o.Status == simba.StatusAcquired || o.Status == simba.StatusRenewed):
			c.own(r, o)
		default:
			c.giveUp(r.Contender, err)
		}
	}
}

// acquire asks for the mutex, perhaps with WAIT. gone says that the client has disconnected.
func (c *client) acquire(r simba.AcquireRequest) (o simba.Outcome, gone bool, err error) {
	if c.rng.IntN(3) == 0 {
		o, _, err = c.server.Acquire(context.Background(), r)
		return o, false, err
	}
	disconnects := c.rng.IntN(3) == 0
	if disconnects {
		r.TTL = longLease
	}
	woken := make(chan struct{}, 1)
	r.Waiter, r.NoQueue = wakes(woken), false
	o, ticket, err := c.server.Acquire(context.Background(), r)
	patience := time.After(c.ms(8000))
	for err == nil && ticket != nil && o.Status == simba.StatusWaiting {
		why := simba.EndTimeout
		select {
		case <-woken:
			why = simba.EndWoken
		case <-patience:
		}
		if disconnects {
			why = simba.EndGone
		}
		o, err = ticket.End(why)
	}
	switch {
	case !disconnects:
	case ticket == nil: // it got a reply before it disconnected
		c.giveUp(r.Contender, err)
	case err == nil && o.Status == simba.StatusAcquired:
		_, _ = ticket.Abandon()
	}
	return o, disconnects, err
}

type wakes chan struct{}

func (w wakes) Wake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// own has the mutex for a while, renews the lease, and releases it or lets it end.
func (c *client) own(r simba.AcquireRequest, o simba.Outcome) {
	t := tenures.Tenure{Owner: r.Contender, Token: o.Token, From: time.Since(c.start)}
	until := time.Now().Add(o.Transition)
	for range c.rng.IntN(4) {
		time.Sleep(c.ms(1500))
		if !time.Now().Before(until) {
			break
		}
		g, err := c.server.Guard(context.Background(), simba.GuardRequest{Mutex: r.Mutex, Contender: r.Contender, TTL: r.TTL, Transition: r.Transition, Token: o.Token})
		if err == nil && g.Status == simba.StatusLost {
			if time.Now().Before(until.Add(-2 * time.Millisecond)) {
				c.Errorf("%v: GUARD of %s replied lost %v before the lease ends", time.Since(c.start), r.Contender, time.Until(until))
			}
			break
		}
		if err == nil {
			until = time.Now().Add(g.Transition)
		}
	}
	if now := time.Now(); now.Before(until) {
		until = now
	}
	// The reply's windows are rounded up to milliseconds, and so is the store's clock.
	if t.To = until.Sub(c.start) - 2*time.Millisecond; t.To >= t.From {
		c.mu.Lock()
		c.tenures[c.mutex] = append(c.tenures[c.mutex], t)
		c.mu.Unlock()
	}
	if c.rng.IntN(4) > 0 {
		c.release(r.Contender, o.Token*uint64(c.rng.IntN(2)))
	}
}

// giveUp makes sure that a contender does not own the mutex. After an error the store may still
// grant it the mutex, until the Horizon.
func (c *client) giveUp(contender string, err error) {
	if err != nil {
		time.Sleep(requestTimeout + memoryLate)
	}
	c.release(contender, 0)
}

// release repeats RELEASE until a server replies.
func (c *client) release(contender string, token uint64) {
	for {
		_, _, err := c.server.Release(context.Background(), simba.ReleaseRequest{Mutex: c.mutex, Contender: contender, Token: token})
		if err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func (w *simulation) everyWaiterIsServed(mutexes []string) {
	var all sync.WaitGroup
	for i := range 4 * len(w.servers) {
		c := &client{simulation: w, rng: rand.New(rand.NewPCG(uint64(i), 1)), mutex: mutexes[i%len(mutexes)], server: w.servers[i%len(w.servers)]}
		all.Go(func() {
			woken := make(chan struct{}, 1)
			r := simba.AcquireRequest{Mutex: c.mutex, Contender: fmt.Sprint("last-", i), TTL: time.Minute, Waiter: wakes(woken)}
			o, ticket, err := c.server.Acquire(context.Background(), r)
			limit := time.After(time.Minute)
			for err == nil && o.Status == simba.StatusWaiting {
				select {
				case <-woken:
					o, err = ticket.End(simba.EndWoken)
				case <-limit:
					w.data.mu.Lock()
					row := fmt.Sprintf("%+v", w.data.rows[c.mutex])
					w.data.mu.Unlock()
					w.Errorf("%s waits for %s although no fault is left: %s", r.Contender, c.mutex, row)
					_, _ = ticket.End(simba.EndLeft)
					return
				}
			}
			if err != nil || o.Status != simba.StatusAcquired {
				w.Errorf("ACQUIRE … WAIT of %s: %+v, %v; want acquired", r.Contender, o, err)
				return
			}
			t := tenures.Tenure{Owner: r.Contender, Token: o.Token, From: time.Since(w.start)}
			time.Sleep(100 * time.Millisecond)
			t.To = time.Since(w.start) - time.Millisecond
			w.mu.Lock()
			w.tenures[c.mutex] = append(w.tenures[c.mutex], t)
			w.mu.Unlock()
			c.release(r.Contender, o.Token)
		})
	}
	all.Wait()
}

func (w *simulation) nothingIsLeft(mutexes []string) {
	time.Sleep(30 * time.Second)
	for _, mutex := range mutexes {
		for i, e := range w.servers {
			if o, _, err := e.Owner(context.Background(), mutex); err != nil || !o.IsFree() {
				w.Errorf("server %d shows %s: %+v, %v; want it free", i, mutex, o, err)
			}
			if q, _, err := e.Queue(context.Background(), mutex, 10); err != nil || len(q) > 0 {
				w.Errorf("server %d: the queue of %s is %+v, %v; want it empty", i, mutex, q, err)
			}
		}
	}
	for i, e := range w.servers {
		e.mu.Lock()
		if len(e.mutexes)+len(e.sessions) > 0 {
			w.Errorf("server %d still has the state of %d mutexes and %d sessions", i, len(e.mutexes), len(e.sessions))
		}
		e.mu.Unlock()
	}
}

func (w *simulation) judge() {
	for mutex, all := range w.tenures {
		slices.SortFunc(all, func(a, b tenures.Tenure) int { return int(a.From - b.From) })
		var merged []tenures.Tenure // a contender that asks again has the same tenure
		for _, t := range all {
			if n := len(merged); n > 0 && merged[n-1].Owner == t.Owner && merged[n-1].Token == t.Token {
				merged[n-1].To = max(merged[n-1].To, t.To)
			} else {
				merged = append(merged, t)
			}
		}
		for _, wrong := range append(tenures.Overlaps(merged), tenures.Descents(merged)...) {
			w.Errorf("%s: %s", mutex, wrong)
		}
		for i, e := range w.servers {
			var events []tenures.Event
			list, _, err := e.History(context.Background(), simba.HistoryRequest{Mutex: mutex, Count: 10000})
			if err != nil {
				w.Fatal(err)
			}
			for _, h := range list {
				events = append(events, tenures.Event{Kind: h.Kind.String(), Owner: h.Owner, Token: h.Token})
			}
			if _, wrong := tenures.InHistory(events, tenures.Partial); len(wrong) > 0 {
				w.Errorf("history of %s at server %d: %q", mutex, i, wrong)
			}
		}
	}
}
