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

// adopted starts a poller. dial returns a new client. The poller runs serve for its connection.
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

// echo returns all bytes to the client, until the client closes the connection.
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

// exchange sends a text and expects to receive the same text.
func exchange(t *testing.T, client net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(client, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(client, got); err != nil || string(got) != text {
		t.Fatalf("received %q, %v, want %q", got, err, text)
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

func TestDetachedCoroutineMayBlock(t *testing.T) {
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
			t.Error("other connections wait for a detached coroutine")
		}
	}
	close(release)
	exchange(t, waits, "waited")
	exchange(t, waitsToo, "waited")
}

func TestOrderedCoroutinesResumeInOrder(t *testing.T) {
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
			c.DetachInOrder()
			<-release // the first coroutine blocks here, and other connections are still served
			order <- b[0]
		}
	})
	for i := range byte(clients) {
		exchange(t, dial(), string(i))
	}
	close(release)
	for i := range byte(clients) {
		if got := <-order; got != i {
			t.Errorf("coroutine %d was number %d to resume, want the order of DetachInOrder", got, i)
		}
	}
}

func TestReadEndsAtDeadline(t *testing.T) {
	failed := make(chan error)
	dial := adopted(t, func(c *Conn) {
		c.SetReadDeadline(time.Now().Add(time.Millisecond))
		_, err := c.Read(make([]byte, 1))
		failed <- err
	})
	dial()
	if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("Read returned %v, want os.ErrDeadlineExceeded", err)
	}
}

func TestOnlyOrderedTasksSkipTheReturningQueue(t *testing.T) {
	for here, behind := range map[mode]bool{shared: true, detached: true, ordered: false} {
		p := new(Poller)
		task := &task{poller: p, resume: func() (mode, bool) { return shared, true }}
		task.run(here)
		if got := len(p.returning) == 1 && len(p.queue) == 0; got != behind {
			t.Errorf("task from mode %d is in the returning queue: %v, want %v", here, got, behind)
		}
	}
}

func TestReturningTasksRunAfterNewOnes(t *testing.T) {
	p := &Poller{maxReturning: 2}
	a, b, c, fresh := new(task), new(task), new(task), new(task)
	for _, hog := range []*task{a, b, c} {
		p.enqueue(hog, true)
	}
	p.enqueue(fresh, false)
	for i, want := range []struct {
		tasks []*task
		again int
	}{{[]*task{fresh, a, b}, 2}, {[]*task{c}, 1}, {nil, 0}} {
		if i < 2 && p.maySleep() {
			t.Error("the poller sleeps while tasks return")
		}
		if got, again, ok := p.round(nil, nil); !ok || again != want.again || !slices.Equal(got, want.tasks) {
			t.Errorf("round %d has tasks %v, %d of them returning; want tasks %v, %d of them returning", i, got, again, want.tasks, want.again)
		}
	}
	if !p.maySleep() {
		t.Error("the poller does not sleep although there is no task")
	}
}
