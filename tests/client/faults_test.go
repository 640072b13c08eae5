package clienttest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/engine"
)

var (
	firstSeed = flag.Uint64("from", 1, "the first seed of TestWaitsUnderFaults")
	seedCount = flag.Uint64("seeds", 20, "the number of seeds of TestWaitsUnderFaults")
)

// TestWaitsUnderFaults runs processes that contend for mutexes, while processes, the server and the
// network fail. Two processes never work under a mutex at a time. After the faults everybody is
// served soon, and at the end nothing is left.
//
// The seed decides which faults happen when. The scheduler, the pauses and the ids of the Client are
// random, so two runs of a seed differ a little.
func TestWaitsUnderFaults(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seedCount && !t.Failed(); seed++ {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) { newTrial(w, seed).run() })
		})
	}
}

const (
	ofLease = 15 * time.Second
	// soon is how long a waiter may wait after the faults, if no lease has to end first. The server
	// closes the connection of a frozen client after 5 s.
	soon = 10 * time.Second
	// latest is the longest time for which the network delays a packet.
	latest = 8 * time.Second
	// instantly is more than the time in which the server notices that a connection has ended.
	instantly = 100 * time.Millisecond
)

var mutexes = []string{"m0", "m1"}

// trial is the run of one seed.
type trial struct {
	*world
	rng     *rand.Rand
	windows []client.Option
	all     []*process  // in the order of their starts
	served  sync.Map    // the tokens of tenures in which a worker has worked
	calm    atomic.Bool // all works must end
}

// process is a Client whose workers contend.
type process struct {
	*testClient
	name    string // begins the ids of its contenders
	died    time.Duration
	workers []*worker
	hush    atomic.Bool // the next work is long, and silence begins with it
	end     context.CancelFunc
	running sync.WaitGroup
}

// worker contends for a mutex again and again.
type worker struct {
	*recorder
	rng       *rand.Rand
	mutex, id string
	tenures   atomic.Int64
	long      atomic.Bool // the next work is long
	giveUp    atomic.Pointer[context.CancelFunc]
}

func (x *trial) upTo(d time.Duration) time.Duration { return upTo(x.rng, d) }

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

func newTrial(w *world, seed uint64) *trial {
	x := &trial{world: w, rng: rand.New(rand.NewPCG(seed, 44))}
	transition := time.Duration(x.rng.IntN(3)) * 2 * time.Second
	x.windows = lease(ofLease-transition, transition)
	for range 2 + x.rng.IntN(3) {
		x.starts()
	}
	w.t.Cleanup(x.end) // if the test fails
	return x
}

// promptNotices makes faults spare the connections for notices. go-redis holds the lock of a PubSub
// while it connects, and fake time stands still while another goroutine waits for a lock.
func promptNotices(g *testClient, o *redis.Options) {
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if bytes.Contains(debug.Stack(), []byte("redis/go-redis/v9.(*PubSub)")) {
			return g.dialPromptly(ctx, network, addr)
		}
		return g.dial(ctx, network, addr)
	}
}

func (x *trial) starts() {
	p := &process{name: fmt.Sprintf("p%d-", len(x.all))}
	p.testClient = x.clientOf("", client.Options{IDPrefix: p.name}, promptNotices)
	p.slow(x.upTo(20*time.Millisecond), x.upTo(20*time.Millisecond))
	var ctx context.Context
	ctx, p.end = context.WithCancel(bg)
	for _, mutex := range mutexes {
		for _, id := range []string{"", p.name + mutex} { // the Client makes the first one
			k := &worker{recorder: x.recorder(), rng: rand.New(rand.NewPCG(x.rng.Uint64(), 1)), mutex: mutex, id: id}
			p.workers = append(p.workers, k)
			p.running.Go(func() {
				for ctx.Err() == nil {
					x.contend(ctx, p, k)
					time.Sleep(upTo(k.rng, time.Second))
				}
			})
		}
	}
	x.all = append(x.all, p)
}

var errDone = errors.New("the work is done")

// contend contends once. Some callers give up soon, and some work for longer than a lease.
func (x *trial) contend(ctx context.Context, p *process, k *worker) {
	const tick = 100 * time.Millisecond
	wait, work, do := time.Hour, upTo(k.rng, time.Second), p.Do
	if k.rng.IntN(2) == 0 {
		wait = upTo(k.rng, 4*time.Second)
	}
	if k.rng.IntN(10) == 0 {
		work = upTo(k.rng, 2*ofLease)
	}
	if k.rng.IntN(4) == 0 {
		do = p.Lead
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	k.giveUp.Store(&cancel)
	err := do(ctx, k.mutex, func(ctx context.Context) error {
		if ctx.Err() == nil {
			k.begins(ctx)
			k.tenures.Add(1)
			x.served.Store(client.Token(ctx), true)
		}
		if p.hush.Swap(false) {
			k.long.Store(true)
			p.silence()
		}
		if k.long.Swap(false) {
			work = 2 * ofLease
		}
		for ; work > 0 && ctx.Err() == nil && !x.calm.Load(); work -= tick {
			time.Sleep(min(tick, work))
		}
		return client.Final(errDone)
	}, append(slices.Clone(x.windows), client.WithID(k.id))...)
	if !errors.Is(err, errDone) && !errors.Is(err, client.ErrClosed) && ctx.Err() == nil {
		x.t.Error(err)
	}
}

func (x *trial) run() {
	for range 4 {
		for range 1 + x.rng.IntN(4) {
			time.Sleep(x.upTo(4 * time.Second))
			x.fault()
		}
		time.Sleep(x.upTo(2 * ofLease))
		x.calms()
	}
	x.end()
	time.Sleep(2*ofLease + soon)
	for _, mutex := range mutexes {
		x.judge(mutex)
	}
}

// end ends all works.
func (x *trial) end() {
	for _, p := range x.all {
		p.end()
	}
	for _, p := range x.all {
		p.running.Wait()
	}
}

func (x *trial) living() []*process {
	return slices.DeleteFunc(slices.Clone(x.all), func(p *process) bool { return p.died != 0 })
}

// fault inflicts a fault on a process, on its network, or on the server.
func (x *trial) fault() {
	living := x.living()
	p := living[x.rng.IntN(len(living))]
	faults := []struct {
		name    string
		inflict func()
	}{
		{"the connection of NEXT is cut", p.cutNext},
		{"the connection of NEXT freezes", p.freezeNext},
		{"a reply of NEXT breaks", func() { p.tearNext(5 + x.rng.IntN(60)) }},
		{"all connections are cut", p.cut},
		{"all connections freeze", p.freeze},
		{"silence", p.silence},
		{"the silence ends", p.heal},
		{"requests and replies are late", func() { p.slow(x.upTo(latest), x.upTo(latest)) }},
		{"replies are late, and silence follows a grant", func() {
			p.slow(0, x.upTo(2*time.Second))
			p.hush.Store(true)
			time.Sleep(x.upTo(2 * ofLease))
		}},
		{"a caller gives up, and its RELEASE arrives after later requests", func() {
			k := p.workers[x.rng.IntN(len(p.workers))]
			p.delayRequests(timeout + x.upTo(latest-timeout))
			k.long.Store(true)
			(*k.giveUp.Load())()
			time.Sleep(x.upTo(time.Second))
			p.delayRequests(0)
		}},
		{"the process dies", func() { x.dies(p) }},
		{"the server restarts", x.restart},
		{"the server is killed", x.kill},
	}
	f := faults[x.rng.IntN(len(faults))]
	x.t.Logf("%v  %s: %s", x.elapsed(), p.name, f.name)
	f.inflict()
}

// dies ends a process, and starts another one.
func (x *trial) dies(p *process) {
	p.connect(nil)
	p.cut()
	p.died = x.elapsed()
	_ = p.rdb.Close()
	p.end()
	x.guests = slices.DeleteFunc(x.guests, func(g *testClient) bool { return g == p.testClient })
	x.t.Cleanup(func() {
		_ = p.Close()
		p.testClient.all.Wait()
	})
	x.starts()
}

// kill ends the server, and starts one that recovers its leases. What the server had sent last is
// lost.
func (x *trial) kill() {
	for _, g := range x.guests {
		g.connect(nil)
		g.freeze()
	}
	synctest.Wait()
	var rec engine.Recovery
	var leases []simba.Lease
	for _, mutex := range mutexes {
		rec.History = append(rec.History, x.history(mutex)...)
		if t := x.tenure(mutex); !t.IsFree() {
			millis := func(from, to int64) time.Duration { return time.Duration(to-from) * time.Millisecond }
			leases = append(leases, simba.Lease{
				Mutex: mutex, Owner: t.Owner, Token: t.Token, StartedAt: t.StartedAt, AcquiredAt: t.AcquiredAt,
				Acquired: simba.Instant(millis(x.start.UnixMilli(), t.AcquiredAt)),
				TTL:      millis(t.AcquiredAt, t.TTLAt), Transition: millis(t.TTLAt, t.TransitionAt),
			})
		}
	}
	slices.SortFunc(rec.History, func(a, b simba.Event) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, e := range rec.History {
		rec.Seq, rec.Token = e.Seq, max(rec.Token, e.Token)
	}
	rec.Leases = func(yield func(simba.Lease, error) bool) {
		for _, l := range leases {
			if !yield(l, nil) {
				return
			}
		}
	}
	x.stop()
	time.Sleep(x.upTo(latest) * time.Duration(1+x.rng.IntN(3)))
	x.replace(rec)
}

func (x *trial) tenure(mutex string) simba.Tenure {
	t, _, err := x.engine.Owner(bg, mutex)
	must(x.t, err)
	return t
}

// calms ends all faults and works. Then each worker must be served soon, and again.
func (x *trial) calms() {
	x.t.Logf("%v  calm", x.elapsed())
	x.calm.Store(true)
	defer x.calm.Store(false)
	for _, p := range x.living() {
		p.heal()
		p.hush.Store(false)
		p.tearNext(0)
		p.slow(x.upTo(20*time.Millisecond), x.upTo(20*time.Millisecond))
	}
	for range 2 {
		for _, p := range x.living() {
			for _, k := range p.workers {
				x.waitsFor(p, k)
			}
		}
	}
}

func (x *trial) waitsFor(p *process, k *worker) {
	for n, since := k.tenures.Load(), x.elapsed(); k.tenures.Load() == n; time.Sleep(50 * time.Millisecond) {
		if since = max(since, x.excused(k.mutex)); x.elapsed() > since+soon {
			x.t.Fatalf("%s, id %q, waits for %s; the owner is %+v, the queue %q", p.name, k.id, k.mutex, x.tenure(k.mutex), x.queue(k.mutex))
		}
	}
}

// excused returns when the present lease ends, since the start, if no living process can know of it;
// otherwise 0. Its process has died, or its request was so late that it had been given up.
func (x *trial) excused(mutex string) time.Duration {
	t := x.tenure(mutex)
	ofDead := func(p *process) bool { return p.died != 0 && strings.HasPrefix(t.Owner, p.name) }
	atOnce := func(e simba.Event) bool {
		return e.Token == t.Token && e.Kind == simba.EventAcquired && e.Reason != "handoff"
	}
	if t.IsFree() {
		return 0
	}
	if _, served := x.served.Load(t.Token); slices.ContainsFunc(x.all, ofDead) || !served && slices.ContainsFunc(x.history(mutex), atOnce) {
		return time.UnixMilli(t.TransitionAt).Sub(x.start)
	}
	return 0
}

func (x *trial) judge(mutex string) {
	x.nothingLeft(mutex)
	for _, p := range x.all {
		for _, k := range p.workers {
			if k.mutex == mutex {
				x.neverTwo(mutex, k.recorder)
			}
		}
		for _, t := range x.tenures(mutex) {
			if p.died != 0 && strings.HasPrefix(t.Owner, p.name) && t.From > p.died+instantly {
				x.t.Errorf("%s: %v, but that process died at %v", mutex, t, p.died)
			}
			if at := p.torn[t.Token]; !at.IsZero() && t.To > at.Sub(x.start)+instantly {
				x.t.Errorf("%s: %v, but the reply of NEXT broke at %v", mutex, t, at.Sub(x.start))
			}
		}
	}
}
