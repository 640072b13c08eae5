package poll

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// adopted starts a poller and returns what connects a client to a coroutine of it that does serve.
func adopted(t *testing.T, serve func(c *Conn)) (dial func() net.Conn) {
	t.Helper()
	p, err := New()
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	t.Cleanup(func() {
		ln.Close()
		serving.Wait()
		p.Close()
	})
	return func() net.Conn {
		t.Helper()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		nc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Adopt(nc.(*net.TCPConn))
		if err != nil {
			t.Fatal(err)
		}
		serving.Add(1)
		c.Start(func() {
			defer serving.Done()
			defer c.Close()
			serve(c)
		})
		return client
	}
}

// echo sends back what comes, until the client leaves.
func echo(c *Conn) {
	b := make([]byte, 100)
	for {
		n, err := c.Read(b)
		if err != nil {
			return
		}
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

// exchange fails the test unless the client gets back what it sends.
func exchange(t *testing.T, client net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(client, got); err != nil || string(got) != text {
		t.Fatalf("received %q, %v", got, err)
	}
}

func TestManyConnectionsReadAndWrite(t *testing.T) {
	dial := adopted(t, echo)
	clients := make([]net.Conn, 50)
	for i := range clients {
		clients[i] = dial()
	}
	for range 20 {
		for _, c := range clients {
			exchange(t, c, "hello")
		}
	}
}

func TestACoroutineThatIsDetachedMayWait(t *testing.T) {
	detached, release := make(chan bool), make(chan struct{})
	dial := adopted(t, func(c *Conn) {
		c.Detach()
		detached <- !c.Shared()
		<-release
		echo(c)
	})
	waits, waitsToo := dial(), dial()
	for range 2 {
		if !<-detached {
			t.Error("others wait for it")
		}
	}
	close(release)
	exchange(t, waits, "waited")
	exchange(t, waitsToo, "waited")
}

func TestThoseInTheLineGoOnInTheirOrder(t *testing.T) {
	const clients = 10
	order, release := make(chan byte, clients), make(chan struct{})
	dial := adopted(t, func(c *Conn) {
		b := make([]byte, 1)
		for {
			if _, err := c.Read(b); err != nil {
				return
			}
			if _, err := c.Write(b); err != nil {
				return
			}
			c.LineUp()
			<-release // the first one waits, and holds up no reader
			order <- b[0]
		}
	})
	for i := range byte(clients) {
		exchange(t, dial(), string(i))
	}
	close(release)
	for i := range byte(clients) {
		if got := <-order; got != i {
			t.Errorf("%d went on as number %d", got, i)
		}
	}
}

func TestAReadEndsAtItsDeadline(t *testing.T) {
	failed := make(chan error)
	dial := adopted(t, func(c *Conn) {
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		failed <- err
	})
	dial()
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestWhoHasNotWaitedIsBehindTheOthers(t *testing.T) {
	for here, behind := range map[place]bool{looped: true, away: true, lined: false} {
		p := new(Poller)
		task := &task{poller: p, resume: func() (place, bool) { return looped, true }}
		task.goOn(here)
		if got := len(p.again) == 1 && len(p.queue) == 0; got != behind {
			t.Errorf("from %d: behind the others: %v, want %v", here, got, behind)
		}
	}
}

func TestWhoHadATurnIsServedBehindThoseWhoHadNone(t *testing.T) {
	p := &Poller{greedy: 2}
	a, b, c, fresh := new(task), new(task), new(task), new(task)
	for _, hog := range []*task{a, b, c} {
		p.enqueue(hog, true)
	}
	p.enqueue(fresh, false)
	for i, want := range []struct {
		tasks []*task
		again int
	}{{[]*task{fresh, a, b}, 2}, {[]*task{c}, 1}, {nil, 0}} {
		if i < 2 && p.fallsAsleep() {
			t.Error("the poller falls asleep while somebody wants a turn")
		}
		if got, again, ok := p.round(nil, nil); !ok || again != want.again || !slices.Equal(got, want.tasks) {
			t.Errorf("round %d: %v, %d again, not %v", i, got, again, want)
		}
	}
	if !p.fallsAsleep() {
		t.Error("the poller stays awake for nobody")
	}
}
