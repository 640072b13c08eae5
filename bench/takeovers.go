package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	etcd "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	// heldLeases is how many leases clients hold while the leader is killed.
	heldLeases = 10_000
	// retrying is how many clients acquire and release mutexes meanwhile, each one new mutexes.
	retrying = 16
	// A client gives a request up after attempt, and pauses for again before the next one.
	attempt = 250 * time.Millisecond
	again   = 20 * time.Millisecond
	// settling is the shortest time from a takeover until the next one, once all members are back.
	settling = 500 * time.Millisecond
)

// handovers returns how often a leader hands over, beside *kills kills.
func handovers() int { return max(1, *kills/5) }

// ensemble is three servers whose leader ends.
type ensemble interface {
	// hold makes clients hold n leases.
	hold(n int)
	// client returns the client with a number, which connects to any server.
	client(i int) retrier
	// kill kills the leader. It returns when the kernel has closed the leader's connections.
	kill()
	// handOver makes the leader hand over in an orderly way.
	handOver()
	// restore waits until all servers run, and have nearly all records.
	restore()
}

// retrier is a client that acquires mutexes and connects again after an error.
type retrier interface {
	acquire(mutex string) error // fails after the time attempt
	release(mutex string) error
	close()
}

// takeovers measures how long clients wait for a grant after the leader was killed, or has handed over.
func (b *bench) takeovers() {
	if b.wanted(simbaThree) {
		b.try("takeovers of "+simbaThree, func(tb *testbed) { b.takeover(simbaThree, startMembers(tb)) })
	}
	if b.wanted(etcdThree) {
		b.try("takeovers of "+etcdThree, func(tb *testbed) {
			b.takeover(etcdThree, &etcds{tb: tb, all: stores.EtcdCluster(tb, 3)})
		})
	}
}

func (b *bench) takeover(name string, e ensemble) {
	e.hold(heldLeases)
	g := startGrants(e)
	defer g.stop()
	var killed, handed simbatest.Latencies
	for range *kills {
		e.restore()
		time.Sleep(settling + rand.N(settling))
		took := g.next(e.kill)
		b.say("%-24s kill -9 of the leader: the next grant after %4.0f ms", name, inMS(took))
		b.add(len(killed), key{takeover, name, heldLeases}, took.Seconds())
		killed = append(killed, took)
	}
	b.add(0, key{takeoverP99, name, heldLeases}, killed.Quantile(0.99).Seconds())
	for range handovers() {
		e.restore()
		time.Sleep(settling + rand.N(settling))
		took := g.longest(e.handOver)
		b.say("%-24s the leader hands over: %4.0f ms without a grant", name, inMS(took))
		b.add(len(handed), key{handover, name, heldLeases}, inMS(took))
		handed = append(handed, took)
	}
	b.add(0, key{handoverLongest, name, heldLeases}, inMS(handed.Quantile(1)))
}

// grants are the grants of the first of many clients.
type grants struct {
	end     atomic.Bool
	running sync.WaitGroup
	granted chan grant // the grants, for who reads them in time
}

type grant struct{ asked, at time.Time }

func startGrants(e ensemble) *grants {
	g := &grants{granted: make(chan grant, 1<<16)}
	for i := range retrying {
		c := e.client(i)
		g.running.Go(func() {
			defer c.close()
			for n := 0; !g.end.Load(); n++ {
				mutex, asked := fmt.Sprintf("taken-%d-%d", i, n), time.Now()
				err := c.acquire(mutex)
				if err == nil && i == 0 {
					select {
					case g.granted <- grant{asked, time.Now()}:
					default:
					}
				}
				if err == nil {
					err = c.release(mutex)
				}
				if err != nil {
					time.Sleep(again)
				}
			}
		})
	}
	return g
}

func (g *grants) stop() {
	g.end.Store(true)
	g.running.Wait()
}

// clear forgets the grants so far.
func (g *grants) clear() {
	for len(g.granted) > 0 {
		<-g.granted
	}
}

// next returns the time from the call of end to the next grant that was asked for after it.
func (g *grants) next(end func()) time.Duration {
	g.clear()
	began := time.Now()
	end()
	ended := time.Now()
	for limit := time.After(patience); ; {
		select {
		case x := <-g.granted:
			if x.asked.After(ended) {
				return x.at.Sub(began)
			}
		case <-limit:
			return patience
		}
	}
}

// longest returns the longest time without a grant from the call of end until two seconds after it.
func (g *grants) longest(end func()) (longest time.Duration) {
	g.clear()
	last := time.Now()
	end()
	for limit := time.After(2 * time.Second); ; {
		select {
		case x := <-g.granted:
			longest, last = max(longest, x.at.Sub(last)), x.at
		case <-limit:
			return max(longest, time.Since(last))
		}
	}
}

func (m *members) hold(n int) {
	acquire := func(i int) []byte { return frame("SIMBA.ACQUIRE", heldName(i), "c", leaseMS) }
	m.tb.must(pipe(m.leader().Addr, n, acquire, patience))
}

func (m *members) kill() { m.leading.Kill() }

func (m *members) handOver() { m.leading.Signal(syscall.SIGTERM) }

func (m *members) restore() {
	for _, s := range m.all {
		s.Start()
	}
	m.leading = m.leader()
}

func (m *members) client(i int) retrier {
	c := &simbaRetrier{id: fmt.Sprintf("c%d", i), next: i}
	for _, s := range m.all {
		c.addrs = append(c.addrs, s.Addr)
	}
	return c
}

// simbaRetrier connects to the next address after each error.
type simbaRetrier struct {
	id    string
	addrs []string
	next  int
	w     *wire // nil = not connected
}

func (c *simbaRetrier) acquire(mutex string) error {
	return c.wants("acquired", frame("SIMBA.ACQUIRE", mutex, c.id, "10000"))
}

func (c *simbaRetrier) release(mutex string) error {
	return c.wants("1", frame("SIMBA.RELEASE", mutex, c.id))
}

// wants sends a command, and returns an error unless the reply has the text.
func (c *simbaRetrier) wants(text string, command []byte) (err error) {
	if c.w == nil {
		if c.w, err = dial(c.addrs[c.next%len(c.addrs)], attempt); err != nil {
			c.next++
			return err
		}
	}
	var got [][]byte
	if err = c.w.c.SetDeadline(time.Now().Add(attempt)); err == nil {
		got, err = c.w.ask(command)
	}
	if err == nil && !slices.ContainsFunc(got, func(field []byte) bool { return string(field) == text }) {
		err = fmt.Errorf("the reply is %q, want %s", got, text)
	}
	if err != nil {
		c.close()
		c.next++
	}
	return err
}

func (c *simbaRetrier) close() {
	if c.w != nil {
		c.w.close()
		c.w = nil
	}
}

// etcds are the members of an etcd.
type etcds struct {
	tb      *testbed
	all     []*stores.Server
	leading *stores.Server // at the last restore
}

func (e *etcds) connect() *etcd.Client {
	var addrs []string
	for _, s := range e.all {
		addrs = append(addrs, s.Addr)
	}
	c, err := newEtcd(addrs...)
	e.tb.must(err)
	return c
}

func (e *etcds) hold(n int) {
	c := e.connect()
	defer c.Close()
	var all sync.WaitGroup
	errs := make(chan error, n)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	const at = 64 // requests at a time
	for first := range at {
		all.Go(func() {
			for i := first; i < n; i += at {
				l, err := c.Grant(ctx, int64(lease.Seconds()))
				if err == nil {
					_, err = c.Put(ctx, heldName(i), "c", etcd.WithLease(l.ID))
				}
				if err != nil {
					errs <- err
				}
			}
		})
	}
	all.Wait()
	if len(errs) > 0 {
		e.tb.Fatal(<-errs)
	}
}

func (e *etcds) kill() { e.leading.Kill() }

func (e *etcds) handOver() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := newEtcd(e.leading.Addr)
	e.tb.must(err)
	defer c.Close()
	next := e.all[(slices.Index(e.all, e.leading)+1)%len(e.all)]
	id, _, err := etcdStatus(next.Addr)
	e.tb.must(err)
	_, err = c.MoveLeader(ctx, id)
	e.tb.must(err)
}

func (e *etcds) restore() {
	for _, s := range e.all {
		s.Start()
	}
	e.leading = etcdLeader(e.tb, e.all)
}

func (e *etcds) client(int) retrier {
	c := &etcdRetrier{client: e.connect()}
	var err error
	c.session, err = concurrency.NewSession(c.client, concurrency.WithTTL(int(lease.Seconds())))
	e.tb.must(err)
	return c
}

// etcdRetrier leaves it to etcd's client which member it asks.
type etcdRetrier struct {
	client  *etcd.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func (c *etcdRetrier) acquire(mutex string) error {
	ctx, cancel := context.WithTimeout(context.Background(), attempt)
	defer cancel()
	c.mutex = concurrency.NewMutex(c.session, "/taken/"+mutex)
	return c.mutex.Lock(ctx)
}

func (c *etcdRetrier) release(string) error {
	ctx, cancel := context.WithTimeout(context.Background(), attempt)
	defer cancel()
	return c.mutex.Unlock(ctx)
}

func (c *etcdRetrier) close() {
	c.session.Orphan()
	c.client.Close()
}
