package clienttest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

// fleet has contenders of many mutexes on a few Clients.
type fleet struct {
	b        *testing.B
	clients  []*client.Client
	all      []*client.Contender
	acquired atomic.Int64
	released atomic.Int64
}

// newFleet creates Clients of the server at addr. With each of them, it starts one contender for
// each of n mutexes.
func newFleet(b *testing.B, addr string, clients, n int) *fleet {
	b.Helper()
	c := &fleet{b: b}
	for range clients {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true, PoolSize: 20})
		cl, err := client.New(rdb, client.Options{Logger: slog.New(slog.DiscardHandler)})
		must(b, err)
		b.Cleanup(func() {
			cl.Close()
			rdb.Close()
		})
		c.clients = append(c.clients, cl)
		for i := range n {
			k, err := cl.NewContender(client.ContenderConfig{
				Mutex: fmt.Sprint("job", i), TTL: 10 * time.Second, Transition: 2 * time.Second,
				OnAcquired: func(context.Context, client.State) { c.acquired.Add(1) },
				OnReleased: func(client.State) { c.released.Add(1) },
			})
			must(b, err)
			c.all = append(c.all, k)
			must(b, k.Start())
		}
	}
	return c
}

// owned waits until n mutexes have an owner, and returns how long that took.
func (c *fleet) owned(n int64) time.Duration {
	began := time.Now()
	for c.acquired.Load()-c.released.Load() != n {
		if time.Since(began) > time.Minute {
			c.b.Fatalf("after a minute %d of %d mutexes have an owner", c.acquired.Load()-c.released.Load(), n)
		}
		time.Sleep(time.Millisecond)
	}
	return time.Since(began)
}

// stop stops all contenders concurrently, and returns how long that took.
func (c *fleet) stop() time.Duration {
	began := time.Now()
	done := make(chan error, len(c.all))
	for _, k := range c.all {
		go func() { done <- k.Stop(bg) }()
	}
	for range c.all {
		if err := <-done; err != nil {
			c.b.Error(err)
		}
	}
	return time.Since(began)
}

// BenchmarkTenThousandContenders runs contenders of 10,000 mutexes on one Client.
func BenchmarkTenThousandContenders(b *testing.B) {
	const n = 10_000
	addr, _ := realServer(b)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		goroutines := runtime.NumGoroutine()
		c := newFleet(b, addr, 1, n)
		took := c.owned(n)
		time.Sleep(time.Second)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(took.Seconds(), "s/acquired")
		b.ReportMetric(float64(runtime.NumGoroutine()-goroutines)/n, "goroutines/contender")
		b.ReportMetric(float64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse)/n, "B/contender")
		b.ReportMetric(c.stop().Seconds(), "s/stopped")
	}
}

// BenchmarkAnOutage breaks the connections of 3,000 contenders of 1,000 mutexes, and lets new
// connections fail for 8 s. The leases of 12 s do not expire.
func BenchmarkAnOutage(b *testing.B) {
	const n, clients = 1000, 3
	server, _ := realServer(b)
	for b.Loop() {
		gate := newGate(b, server)
		c := newFleet(b, gate.addr, clients, n)
		c.owned(n)
		time.Sleep(3 * time.Second)
		gate.shut()
		time.Sleep(8 * time.Second)
		gate.open()
		began := time.Now()
		lost := c.released.Load()
		time.Sleep(15 * time.Second) // longer than a lease: all owners have renewed
		b.ReportMetric(float64(c.released.Load()), "lost")
		b.ReportMetric(float64(lost), "lost-meanwhile")
		c.owned(n)
		b.ReportMetric(time.Since(began).Seconds()-15, "s/owned-again")
		c.stop()
		gate.shut()
	}
}

// gate is a TCP relay to a server. When it is shut, it breaks and refuses connections.
type gate struct {
	addr string
	mu   sync.Mutex    // guards the fields below
	cut  chan struct{} // closed by shut; nil = the gate is shut
}

func newGate(b *testing.B, server string) *gate {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	g := &gate{addr: ln.Addr().String()}
	b.Cleanup(func() {
		ln.Close()
		g.shut()
	})
	g.open()
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			g.mu.Lock()
			cut := g.cut
			g.mu.Unlock()
			if cut == nil {
				near.Close()
				continue
			}
			far, err := net.Dial("tcp", server)
			if err != nil {
				near.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				defer to.Close()
				defer from.Close()
				buf := make([]byte, 16<<10)
				for {
					n, err := from.Read(buf)
					if err != nil {
						return
					}
					if _, err := to.Write(buf[:n]); err != nil {
						return
					}
				}
			}
			go pass(near, far)
			go pass(far, near)
			go func() {
				<-cut
				near.Close()
				far.Close()
			}()
		}
	}()
	return g
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = make(chan struct{})
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cut != nil {
		close(g.cut)
		g.cut = nil
	}
}
