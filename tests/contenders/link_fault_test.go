package contenders

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestAPartitionedOwnerStopsBeforeTheNextBegins(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	for name, cut := range map[string]func(*stores.Link){
		"nothing passes":          (*stores.Link).Blackhole,
		"connections are refused": (*stores.Link).Refuse,
		"replies are lost":        (*stores.Link).DropReplies,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			link := stores.NewLink(t, s.Addr)
			cfg := client.ContenderConfig{Mutex: fmt.Sprintf("cut-%p", link), TTL: 500 * time.Millisecond, Transition: 10 * time.Second}
			k, other := newRecorded(t, newClient(t, link.Addr()), cfg), newRecorded(t, newClient(t, s.Addr), cfg)
			k.start(t)
			within(t, "OnAcquired is called", k.acquired)
			ownership, token := k.ownership(), k.token()
			k.renewed(t)
			cut(link)
			other.start(t)
			within(t, "the other contender acquires", other.acquired)
			if ownership.Err() == nil || k.IsOwner() {
				t.Error("the first contender is the owner after the other has acquired the mutex")
			}
			if other.token() <= token {
				t.Errorf("token %d follows token %d, want a larger token", other.token(), token)
			}
			within(t, "OnReleased is called", k.released)
			if cause := context.Cause(ownership); !errors.Is(cause, client.ErrLost) {
				t.Errorf("the cause of the ownership's end is %v, want ErrLost", cause)
			}
			k.noCallbacks(t)
			link.Heal()
			other.stop(t)
			within(t, "OnAcquired is called again", k.acquired)
			if k.token() <= other.token() {
				t.Errorf("token %d follows token %d, want a larger token", k.token(), other.token())
			}
		})
	}
}

func TestBrokenConnectionsDoNotEndATenure(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	link := stores.NewLink(t, s.Addr)
	k := newRecorded(t, newClient(t, link.Addr()), steady("m"))
	k.start(t)
	within(t, "OnAcquired is called", k.acquired)
	for range 5 {
		link.Reset()
		k.renewed(t)
	}
	k.noCallbacks(t)
	k.stop(t)
	if n := serverSaw(t, changes(t, connect(t, s.Addr), "m"), nil); n != 1 {
		t.Errorf("the server had %d tenures, want 1", n)
	}
}

func TestASlowNetworkDoesNotEndATenure(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	link := stores.NewLink(t, s.Addr)
	k := newRecorded(t, newClient(t, link.Addr()), client.ContenderConfig{Mutex: "m", TTL: time.Second, Transition: 20 * time.Second})
	k.start(t)
	within(t, "OnAcquired is called", k.acquired)
	link.Delay(700 * time.Millisecond) // a request takes longer than the TTL
	for range 3 {
		k.renewed(t)
	}
	k.noCallbacks(t)
	k.stop(t)
	if n := serverSaw(t, changes(t, connect(t, s.Addr), "m"), nil); n != 1 {
		t.Errorf("the server had %d tenures, want 1", n)
	}
}

func TestALostReplyLosesNoTenure(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	for _, request := range []string{"simba.acquire", "simba.guard", "simba.release"} {
		t.Run(request, func(t *testing.T) {
			t.Parallel()
			link := stores.NewLink(t, s.Addr)
			k, other := newRecorded(t, newClient(t, link.Addr()), steady(request)), newRecorded(t, newClient(t, s.Addr), steady(request))
			lost := link.DropReplyTo(request)
			k.start(t)
			within(t, "OnAcquired is called", k.acquired)
			k.renewed(t)
			other.start(t)
			within(t, "the waiter is in the queue", other.waits(t))
			k.stop(t)
			within(t, "a reply is lost", lost)
			within(t, "OnReleased is called", k.released)
			within(t, "the other contender acquires", other.acquired)
			k.noCallbacks(t)
			other.renewed(t)
			other.noCallbacks(t)
			if n := serverSaw(t, changes(t, connect(t, s.Addr), request), nil); n != 2 {
				t.Errorf("the server had %d tenures, want 2", n)
			}
		})
	}
}

// The lease lasts for hours, so only a notice can give the mutex to the waiter.
func TestAGrantDuringASubscribersOutageIsNotLost(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	link := stores.NewLink(t, s.Addr)
	long := client.ContenderConfig{Mutex: "m", TTL: time.Hour, Transition: time.Hour}
	holder, waiter := newRecorded(t, newClient(t, s.Addr), long), newRecorded(t, newClient(t, link.Addr()), long)
	for range 5 {
		holder.start(t)
		within(t, "OnAcquired is called", holder.acquired)
		waiter.start(t)
		within(t, "the waiter is in the queue", waiter.waits(t))
		link.Reset()
		holder.stop(t)
		within(t, "the waiter acquires", waiter.acquired)
		waiter.stop(t)
	}
}

// go-redis repeats a request whose connection breaks before the reply.
func TestALostReplyToReleaseIsNotReportedAsALostMutex(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	var lost atomic.Bool
	rdb := redis.NewClient(&redis.Options{
		Addr: s.Addr, ContextTimeoutEnabled: true,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return &forgetful{Conn: conn, lost: &lost}, err
		},
	})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	k := newRecorded(t, c, stable("m"))
	k.start(t)
	within(t, "OnAcquired is called", k.acquired)
	k.stop(t)
	if !lost.Load() {
		t.Error("the connection has lost no reply, so the test proves nothing")
	}
	if o, err := k.ask(t); err != nil || !o.IsZero() {
		t.Errorf("after Stop, Owner returns %+v, %v, want no owner", o, err)
	}
}

// forgetful is a connection that breaks before the first reply to a release.
type forgetful struct {
	net.Conn
	lost *atomic.Bool // a connection has lost a reply to a release

	// unguarded: a connection has one request at a time
	released, ended bool
}

func (f *forgetful) Write(b []byte) (int, error) {
	f.released = f.released || bytes.Contains(b, []byte("simba.release"))
	return f.Conn.Write(b)
}

func (f *forgetful) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if f.released && f.lost.CompareAndSwap(false, true) {
		f.Conn.Close()
		f.ended = true
	}
	if f.ended {
		return 0, io.EOF
	}
	return n, err
}
