package commands

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestRandomWaitsKeepTheRules lets clients wait, cancel, release and lose their connections at
// random, for many seeds. Between the steps nothing moves: then no mutex is free while somebody is
// blocked, and each owner knows that it is one, or will read so.
func TestRandomWaitsKeepTheRules(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			newRandomWaits(t, seed).run()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

type randomWaits struct {
	t       *testing.T
	rng     *rand.Rand
	s       *site
	admin   *peer
	clients []*randomClient
	mutexes []string
	last    map[string]uint64 // the largest token of each mutex
	n       int               // the last request number
}

// randomClient is a client with one contender. It sends requests and NEXT on two connections.
type randomClient struct {
	*randomWaits
	name     string
	requests *peer
	wire     *breaking // of the connection for NEXT
	next     *peer
	waiter   string
	waits    map[int]string    // the mutexes of requests without an outcome
	old      map[int]bool      // those of waits that the client no longer needs
	polled   time.Time         // of the last SIMBA.NEXT
	tokens   map[string]string // of the mutexes that it owns
}

// breaking is a connection whose next write is cut short after a number of bytes; below 0 = none
// is.
type breaking struct {
	net.Conn
	after int
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.after < 0 {
		return b.Conn.Write(p)
	}
	n, _ := b.Conn.Write(p[:min(b.after, len(p)-1)])
	b.Conn.Close()
	return n, net.ErrClosed
}

func newRandomWaits(t *testing.T, seed uint64) *randomWaits {
	w := &randomWaits{t: t, rng: rand.New(rand.NewPCG(seed, 1)), s: newSite(t, Config{Backend: newEngine(t)}), last: make(map[string]uint64)}
	w.admin = w.s.dial()
	for i := range 1 + w.rng.IntN(3) {
		w.mutexes = append(w.mutexes, fmt.Sprint("m", i))
	}
	for i := range 2 + w.rng.IntN(4) {
		c := &randomClient{randomWaits: w, name: fmt.Sprint("c", i), requests: w.s.dial(), tokens: make(map[string]string)}
		c.connect()
		w.clients = append(w.clients, c)
	}
	return w
}

// connect binds a new waiter.
func (c *randomClient) connect() {
	near, far := net.Pipe()
	c.wire = &breaking{far, -1}
	c.s.running.Go(func() { c.s.server.ServeConn(c.wire) })
	c.n++
	c.next, c.waiter, c.waits = newPeer(c.t, near), fmt.Sprintf("%s-%020d", c.name, c.n), make(map[int]string)
	c.old = make(map[int]bool)
	c.polled = time.Now()
	c.next.expect("SIMBA.NEXT "+c.waiter+" 0", "*0\r\n")
}

func (w *randomWaits) run() {
	for range 150 {
		c := w.clients[w.rng.IntN(len(w.clients))]
		mutex := w.mutexes[w.rng.IntN(len(w.mutexes))]
		switch n := w.rng.IntN(20); {
		case n < 7:
			c.acquire(mutex)
		case n < 10:
			c.poll()
		case n < 12:
			c.cancel()
		case n < 15:
			c.release(mutex)
		case n < 16:
			c.next.nc.Close()
			synctest.Wait()
			c.reconnect()
		case n < 17:
			c.readHalf()
		default:
			time.Sleep(time.Duration(w.rng.IntN(1500)) * time.Millisecond)
			for _, c := range w.clients {
				if time.Since(c.polled) > maxSilence-2*time.Second {
					c.poll()
				}
			}
		}
		synctest.Wait()
		w.check()
	}
	for _, c := range w.clients {
		c.poll()
		c.next.nc.Close()
	}
	synctest.Wait()
	if n := w.s.x.store.waits.Load(); n != 0 {
		w.t.Errorf("after the end of all waiters %d waits are left", n)
	}
	w.s.x.tenures.Range(func(_, t any) bool {
		w.t.Errorf("after the end of all waiters the tenure %v is left", t.(*tenure).token)
		return true
	})
}

func (c *randomClient) acquire(mutex string) {
	c.n++
	wait := []int{0, 500, 5000}[c.rng.IntN(3)]
	v := values(c.requests.do(fmt.Sprintf("SIMBA.ACQUIRE %s %s %d WAIT %d VIA %s REQUEST %d", mutex, c.name, 100+c.rng.IntN(3000), wait, c.waiter, c.n)))
	switch v["status"] {
	case "acquired":
		c.owns(mutex, v["token"])
	case "renewed":
		c.tokens[mutex] = v["token"]
		for n, waiting := range c.waits {
			c.old[n] = c.old[n] || waiting == mutex
		}
	case "queued":
		c.waits[c.n] = mutex
	default:
		c.t.Errorf("ACQUIRE replied %v", v)
	}
}

func (c *randomClient) owns(mutex, token string) {
	var n uint64
	fmt.Sscan(token, &n)
	if n <= c.last[mutex] {
		c.t.Errorf("%s was granted to %s with the token %d, after %d", mutex, c.name, n, c.last[mutex])
	}
	c.last[mutex], c.tokens[mutex] = n, token
}

// poll reads all outcomes that are there.
func (c *randomClient) poll() {
	c.polled = time.Now()
	for _, record := range strings.Split(c.next.do("SIMBA.NEXT "+c.waiter+" 0"), bulk("request"))[1:] {
		v := values(bulk("request") + record)
		var n int
		fmt.Sscan(v["request"], &n)
		if c.waits[n] != v["mutex"] {
			c.t.Errorf("%s got the outcome %v, but waits for %v", c.name, v, c.waits)
		}
		if v["status"] == "acquired" && !c.old[n] {
			c.owns(v["mutex"], v["token"])
		} else if v["status"] == "acquired" && c.tokens[v["mutex"]] != v["token"] {
			c.requests.do(fmt.Sprintf("SIMBA.RELEASE %s %s TOKEN %s", v["mutex"], c.name, v["token"]))
		}
		delete(c.waits, n)
		delete(c.old, n)
	}
}

func (c *randomClient) cancel() {
	for _, n := range slices.Sorted(maps.Keys(c.waits)) {
		mutex := c.waits[n]
		c.requests.do(fmt.Sprintf("SIMBA.RELEASE %s %s VIA %s REQUEST %d", mutex, c.name, c.waiter, n))
		delete(c.waits, n)
		delete(c.old, n)
		return
	}
}

func (c *randomClient) release(mutex string) {
	if token := c.tokens[mutex]; token != "" {
		c.requests.do(fmt.Sprintf("SIMBA.RELEASE %s %s TOKEN %s", mutex, c.name, token))
		delete(c.tokens, mutex)
	}
}

// readHalf breaks the connection in the middle of the next reply of NEXT.
func (c *randomClient) readHalf() {
	c.wire.after = c.rng.IntN(40)
	c.next.send("SIMBA.NEXT " + c.waiter + " 0")
	for {
		if _, err := c.next.r.ReadByte(); err != nil {
			break
		}
	}
	synctest.Wait()
	c.reconnect()
}

// reconnect binds a new waiter, and repeats all waits or none.
func (c *randomClient) reconnect() {
	again, old := c.waits, c.old
	c.connect()
	if c.rng.IntN(2) == 0 {
		return
	}
	for _, n := range slices.Sorted(maps.Keys(again)) {
		if !old[n] {
			c.acquire(again[n])
		}
	}
}

// check compares the server with what the clients know.
func (w *randomWaits) check() {
	for _, mutex := range w.mutexes {
		v := values(w.admin.do("SIMBA.OWNER " + mutex))
		if v["owner"] == "" {
			if queue := w.admin.do("SIMBA.QUEUE " + mutex); strings.Contains(queue, "blocked") {
				w.t.Errorf("%s is free, but the queue is %q", mutex, queue)
			}
			continue
		}
		for _, c := range w.clients {
			if c.name != v["owner"] || c.tokens[mutex] == v["token"] {
				continue
			}
			known := false
			for _, waiting := range c.waits {
				known = known || waiting == mutex
			}
			if !known {
				w.t.Errorf("%s owns %s with the token %s without its knowledge; it waits for %v and has %v", c.name, mutex, v["token"], c.waits, c.tokens)
			}
		}
	}
}
