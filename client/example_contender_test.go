package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

func ExampleNew() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{}) // does not connect
	check(err)
	defer c.Close()
	_, err = client.New(rdb, client.Options{Timeout: -time.Second})
	fmt.Println(err)
	// Output: Timeout is -1s, less than 1ms
}

func ExampleOptions() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{Timeout: time.Second, Logger: slog.Default()})
	check(err)
	fmt.Println(c.Close())
	// Output: <nil>
}

func ExampleClient() {
	c, done := connect()
	defer done() // closes c
	fmt.Println(c.Do(context.Background(), "report", func(ctx context.Context) error { return ctx.Err() }))
	// Output: <nil>
}

func ExampleClient_Close() {
	c, done := connect()
	defer done()
	fmt.Println(c.Close())
	// Output: <nil>
}

// Owner does not contend.
func ExampleClient_Owner() {
	c, done := connect()
	defer done()
	o, err := c.Owner(context.Background(), "report")
	check(err)
	fmt.Println(o.IsZero())
	// Output: true
}

// Two contenders want one mutex: the second gets it when the first stops.
func ExampleContender() {
	c, done := connect()
	defer done()
	happens := make(chan string)
	contend := func(id string) *client.Contender {
		k, err := c.NewContender(client.ContenderConfig{
			Mutex: "leader", ID: id, TTL: 10 * time.Second, Transition: 2 * time.Second,
			OnAcquired: func(context.Context, client.State) { happens <- id + " leads" },
			OnReleased: func(client.State) { happens <- id + " does not lead" },
		})
		check(err)
		check(k.Start())
		return k
	}
	a := contend("a")
	fmt.Println(<-happens)
	b := contend("b")
	stopped := make(chan error)
	go func() { stopped <- a.Stop(context.Background()) }()
	fmt.Println(<-happens)
	check(<-stopped)
	fmt.Println(<-happens)
	go func() { stopped <- b.Stop(context.Background()) }()
	fmt.Println(<-happens)
	check(<-stopped)
	// Output:
	// a leads
	// a does not lead
	// b leads
	// b does not lead
}

func ExampleClient_NewContender() {
	c, done := connect()
	defer done()
	_, err := c.NewContender(client.ContenderConfig{Mutex: "leader"})
	fmt.Println(err)
	// Output: OnAcquired is nil
}

// The work ends when its ownership context ends.
func ExampleContenderConfig() {
	cfg := client.ContenderConfig{
		Mutex:        "leader",
		TTL:          10 * time.Second,
		Transition:   2 * time.Second,
		InitialDelay: 100 * time.Millisecond,
		OnAcquired: func(ownership context.Context, _ client.State) {
			<-ownership.Done()
			fmt.Println("stop the work")
		},
		OnReleased: func(client.State) { fmt.Println("clean up") },
	}
	ended, end := context.WithCancel(context.Background())
	end()
	cfg.OnAcquired(ended, client.State{})
	cfg.OnReleased(client.State{})
	// Output:
	// stop the work
	// clean up
}

// lead returns a started contender that leads.
func lead(c *client.Client, id string) *client.Contender {
	leads := make(chan struct{})
	k, err := c.NewContender(client.ContenderConfig{
		Mutex: "leader", ID: id, TTL: 10 * time.Second, Transition: 2 * time.Second,
		OnAcquired: func(context.Context, client.State) { close(leads) },
		OnReleased: func(client.State) {},
	})
	check(err)
	check(k.Start())
	<-leads
	return k
}

func ExampleContender_ID() {
	c, done := connect()
	defer done()
	k := lead(c, "shop-1")
	fmt.Println(k.ID())
	check(k.Stop(context.Background()))
	// Output: shop-1
}

func ExampleContender_Start() {
	c, done := connect()
	defer done()
	k := lead(c, "shop-1")
	fmt.Println(errors.Is(k.Start(), client.ErrInUse))
	check(k.Stop(context.Background()))
	// Output: true
}

func ExampleContender_Stop() {
	c, done := connect()
	defer done()
	k := lead(c, "shop-1")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(k.Stop(ctx), k.Stop(ctx))
	// Output: <nil> <nil>
}

func ExampleContender_IsOwner() {
	c, done := connect()
	defer done()
	k := lead(c, "shop-1")
	fmt.Println(k.IsOwner())
	check(k.Stop(context.Background()))
	fmt.Println(k.IsOwner())
	// Output:
	// true
	// false
}

func ExampleContender_Owner() {
	c, done := connect()
	defer done()
	k := lead(c, "shop-1")
	fmt.Println(k.Owner().ID, k.Owner().Token != 0)
	check(k.Stop(context.Background()))
	// Output: shop-1 true
}

// A resource can refuse a write with the token of an earlier tenure, see Client.Check.
func ExampleToken() {
	c, done := connect()
	defer done()
	l, err := c.Lock(context.Background(), "report")
	check(err)
	ctx, cancel := context.WithTimeout(l.Context(), time.Second)
	defer cancel()
	fmt.Println(client.Token(ctx) > 0, client.Token(context.Background()))
	// Output: true 0
}

func ExampleNewID() {
	id := client.NewID()
	fmt.Println(len(id), strings.Contains(id, "-"))
	// Output: 32 false
}

func ExampleNewHostID() {
	id := client.NewHostID() // 1:4711@shop-1
	fmt.Println(strings.Count(id, ":"), strings.Count(id, "@"))
	// Output: 1 1
}

var monday = time.Date(2030, 1, 7, 8, 0, 0, 0, time.UTC)

func ExampleOwner() {
	o := client.Owner{ID: "shop-1", Token: 7, TTLAt: monday.Add(10 * time.Second), TransitionAt: monday.Add(12 * time.Second)}
	for _, after := range []time.Duration{9 * time.Second, 11 * time.Second, 12 * time.Second} {
		fmt.Println(o.InTTL(monday.Add(after)), o.InTransition(monday.Add(after)))
	}
	// Output:
	// true false
	// false true
	// false false
}

func ExampleOwner_IsZero() {
	fmt.Println(client.Owner{}.IsZero(), client.Owner{ID: "shop-1"}.IsZero())
	// Output: true false
}

func ExampleOwner_InTTL() {
	o := client.Owner{ID: "shop-1", TTLAt: monday, TransitionAt: monday.Add(time.Second)}
	fmt.Println(o.InTTL(monday.Add(-1)), o.InTTL(monday))
	// Output: true false
}

func ExampleOwner_InTransition() {
	o := client.Owner{ID: "shop-1", TTLAt: monday, TransitionAt: monday.Add(time.Second)}
	fmt.Println(o.InTransition(monday), o.InTransition(monday.Add(time.Second)))
	// Output: true false
}

func ExampleState() {
	s := client.State{Mutex: "leader", Before: client.Owner{ID: "shop-1"}}
	fmt.Println(s.Mutex, s.Before.ID, s.After.IsZero())
	// Output: leader shop-1 true
}
