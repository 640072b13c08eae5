package zookeeper

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// roamer is a contender behind a load balancer: each of its requests goes to any server.
type roamer struct {
	t         *testing.T
	servers   []*Backend
	mutex, id string
	holder    *atomic.Pointer[simba.Outcome] // of the mutex: the tenure that a contender knows; nil = none
	largest   *atomic.Uint64                 // of the mutex: the largest token so far
	tenures   *atomic.Int64
}

func (r *roamer) server() *Backend { return r.servers[rand.N(len(r.servers))] }

// TestContendersThatRoamBetweenServersKeepTheRules lets contenders acquire, wait, leave, guard and
// release through any of three servers, whose connections break all the time.
func TestContendersThatRoamBetweenServersKeepTheRules(t *testing.T) {
	const mutexes, contenders, lasts = 3, 5, 8 * time.Second
	srv := stores.ZooKeeper(t)
	var servers []*Backend
	var breaks sync.WaitGroup
	end := time.Now().Add(lasts)
	for range 3 {
		link := stores.NewLink(t, srv.Addr)
		servers = append(servers, open(t, Options{Servers: link.Addr(), Options: proxy.Options{QueueGrace: time.Second / 2, HandoffWindow: time.Second / 20}}))
		breaks.Go(func() {
			for time.Now().Before(end) {
				time.Sleep(100*time.Millisecond + rand.N(600*time.Millisecond))
				link.Reset()
			}
		})
	}
	var all sync.WaitGroup
	var tenures atomic.Int64
	for m := range mutexes {
		holder, largest := new(atomic.Pointer[simba.Outcome]), new(atomic.Uint64)
		for c := range contenders {
			r := &roamer{t, servers, fmt.Sprint("m", m), fmt.Sprint("c", c), holder, largest, &tenures}
			all.Go(func() {
				for time.Now().Before(end) {
					r.tryOnce()
				}
			})
		}
	}
	all.Wait()
	breaks.Wait()
	t.Logf("%d tenures", tenures.Load())
	if tenures.Load() == 0 {
		t.Error("no contender acquired a mutex")
	}
}

// tryOnce makes one attempt to acquire the mutex. If it succeeds, it uses and releases the mutex.
func (r *roamer) tryOnce() {
	out, err := r.acquire()
	switch {
	case err != nil:
		time.Sleep(time.Millisecond)
	case out.Status == simba.StatusAcquired || out.Status == simba.StatusRenewed:
		r.use(&out)
	case rand.N(3) == 0:
		_, _, _ = r.server().Release(ctx, simba.ReleaseRequest{Mutex: r.mutex, Contender: r.id})
	}
}

func (r *roamer) acquire() (simba.Outcome, error) {
	q := simba.AcquireRequest{Mutex: r.mutex, Contender: r.id, TTL: longLease}
	w := conformance.NewBlocked()
	switch rand.N(4) {
	case 0:
		q.NoQueue = true
	case 1:
	default:
		q.Waiter = w
	}
	out, ticket, err := r.server().Acquire(ctx, q)
	if err != nil || out.Status != simba.StatusWaiting {
		return out, err
	}
	why := simba.EndWoken
	select {
	case <-w.Woken:
	case <-time.After(rand.N(30 * time.Millisecond)):
		why = []simba.EndReason{simba.EndTimeout, simba.EndLeft, simba.EndGone}[rand.N(3)]
	}
	if out, err = ticket.End(why); why == simba.EndGone {
		return simba.Outcome{}, err
	}
	return out, err
}

func (r *roamer) use(mine *simba.Outcome) {
	if !r.holder.CompareAndSwap(nil, mine) {
		r.t.Errorf("%s: %s acquired it with token %d beside %+v", r.mutex, r.id, mine.Token, *r.holder.Load())
		return
	}
	r.tenures.Add(1)
	if before := r.largest.Swap(mine.Token); mine.Token < before || mine.Token == before && mine.Status == simba.StatusAcquired {
		r.t.Errorf("%s: %s acquired it with token %d after token %d", r.mutex, r.id, mine.Token, before)
	}
	for range rand.N(3) {
		g, err := r.server().Guard(ctx, guardOf(r.mutex, r.id, longLease))
		if err == nil && (g.Status != simba.StatusRenewed || g.Token != mine.Token) {
			r.t.Errorf("%s: GUARD of %s, which owns it with token %d: %+v", r.mutex, r.id, mine.Token, g)
		}
		o, _, err := r.server().Owner(ctx, r.mutex)
		if err == nil && (o.Owner != r.id || o.Token != mine.Token) {
			r.t.Errorf("%s: OWNER while %s owns it with token %d: %+v", r.mutex, r.id, mine.Token, o)
		}
	}
	q := simba.ReleaseRequest{Mutex: r.mutex, Contender: r.id}
	if rand.N(2) == 0 {
		q.Token = mine.Token
	}
	r.holder.Store(nil)
	for repeated := false; ; repeated = true {
		switch ok, _, err := r.server().Release(ctx, q); {
		case err != nil: // the outcome is unknown
		case !ok && !repeated:
			r.t.Errorf("%s: RELEASE of %s, which owned it with token %d, returned false", r.mutex, r.id, mine.Token)
			return
		default:
			return
		}
	}
}
