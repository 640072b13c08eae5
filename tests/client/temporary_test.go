package clienttest

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/script"
)

// The client recognizes temporary errors by their texts, so this test gets the texts from the
// server.
func TestLockWaitsOnAfterTemporaryErrorsOfTheServer(t *testing.T) {
	for text, begin := range map[string]func(*testing.T, *world, *testClient) (end func()){
		"TRYAGAIN":                          unavailableStore,
		"OOM":                               fullMemory,
		"ERR max number of clients reached": tooManyClients,
		"ERR max number of blocked clients reached": tooManyBlocked,
		"UNBLOCKED": unblocked,
		"BUSY":      busy,
	} {
		t.Run(text, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				g := w.client()
				end := begin(t, w, g)
				at := w.elapsed()
				ctx, cancel := context.WithTimeout(bg, time.Minute)
				defer cancel()
				_, err := g.Lock(ctx, "job")
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUnavailable) || !strings.Contains(err.Error(), text) {
					t.Errorf("after %v Lock returns %v, want %q", w.elapsed()-at, err, text)
				}
				end()
				l, err := g.Lock(bg, "job")
				must(t, err)
				w.unlock(l)
			})
		})
	}
}

func unavailableStore(_ *testing.T, w *world, _ *testClient) (end func()) {
	s := w.withStore()
	s.err = errors.New("engine redis unavailable: i/o timeout")
	s.refuses.Store(true)
	return func() { s.refuses.Store(false) }
}

func fullMemory(t *testing.T, w *world, _ *testClient) (end func()) {
	w.occupy(t, "other")
	w.commands.SetMaxMemory(1)
	return func() { w.commands.SetMaxMemory(0) }
}

// tooManyClients gets the text from the server, and a hook refuses requests with it. On a wire,
// go-redis would find the connection closed before it reads the reply.
func tooManyClients(t *testing.T, w *world, g *testClient) (end func()) {
	before := w.server.MaxClients()
	defer w.server.SetMaxClients(before)
	w.server.SetMaxClients(0)
	nc, err := w.client().dial(bg, "", "")
	must(t, err)
	defer nc.Close()
	line, err := bufio.NewReader(nc).ReadString('\n')
	must(t, err)
	return g.refuse(refusal(strings.Trim(line, "-\r\n")))
}

// tooManyBlocked gets the text from ACQUIRE with WAIT, which the client itself does not send.
func tooManyBlocked(t *testing.T, w *world, g *testClient) (end func()) {
	w.occupy(t, "other")
	before := w.server.MaxClients()
	defer w.server.SetMaxClients(before)
	a, b := w.client(), w.client()
	must(t, b.rdb.Ping(bg).Err()) // connects
	_, blocked := a.wait(t, "other")
	w.server.SetMaxClients(1)
	_, reply := b.wait(t, "other")
	w.breakOff("other")
	must(t, <-blocked)
	return g.refuse(<-reply)
}

func unblocked(t *testing.T, w *world, g *testClient) (end func()) {
	w.occupy(t, "other")
	id, reply := w.client().wait(t, "other")
	must(t, w.client().rdb.Do(bg, "client", "unblock", id, "error").Err())
	return g.refuse(<-reply)
}

func busy(_ *testing.T, _ *world, g *testClient) (end func()) {
	return g.refuse(refusal(script.ErrBusy))
}

func (w *world) occupy(t *testing.T, mutex string) {
	t.Helper()
	_, err := w.client().acquire(bg, mutex, "owner", time.Hour)
	must(t, err)
}

// wait sends an ACQUIRE that blocks until the mutex is free. It returns the connection's id and the
// reply's error.
func (g *testClient) wait(t *testing.T, mutex string) (id int64, reply <-chan error) {
	t.Helper()
	conn := g.rdb.Conn()
	id, err := conn.ClientID(bg).Result()
	must(t, err)
	c := make(chan error, 1)
	go func() {
		c <- conn.Do(bg, "simba.acquire", mutex, "waiter", 60_000, "wait", 0).Err()
		_ = conn.Close()
	}()
	synctest.Wait()
	return id, c
}

// refuse makes each request of the client fail with an error reply until the test calls end.
func (g *testClient) refuse(reply error) (end func()) {
	over := new(atomic.Bool)
	g.rdb.AddHook(refusing{reply, over})
	return func() { over.Store(true) }
}
