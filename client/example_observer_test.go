package client_test

import (
	"context"
	"fmt"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

// Watch who owns a mutex until a context ends. With an errgroup, pass Run to its Go method:
//
//	g.Go(func() error { return o.Run(ctx) })
func ExampleObserver() {
	c, done := connect()
	defer done()
	changes := make(chan client.State)
	o, err := c.NewObserver(client.ObserverConfig{
		Mutex:    "orders:4711",
		OnChange: func(s client.State) { changes <- s },
	})
	check(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- o.Run(ctx) }()
	s := <-changes
	fmt.Printf("at first %q\n", s.After.ID)

	r, err := registry.New(c, registry.Config{Prefix: "orders", ID: "shop-1"})
	check(err)
	defer r.Close()
	lock, err := r.Obtain("4711")
	check(err)
	me := r.NewHolder()
	check(lock.Lock(ctx, me))
	s = <-changes
	fmt.Printf("%q, then %q\n", s.Before.ID, s.After.ID)
	check(lock.Unlock(ctx, me))
	s = <-changes
	fmt.Printf("%q, then %q\n", s.Before.ID, s.After.ID)

	cancel()
	check(<-ended)
	// Output:
	// at first ""
	// "", then "shop-1:1"
	// "shop-1:1", then ""
}

func ExampleClient_NewObserver() {
	c, done := connect()
	defer done()
	_, err := c.NewObserver(client.ObserverConfig{Mutex: "orders:4711"})
	fmt.Println(err)
	// Output: OnChange is nil
}

func ExampleObserverConfig() {
	cfg := client.ObserverConfig{
		Mutex: "leader",
		OnChange: func(s client.State) {
			fmt.Printf("%s: %q, then %q\n", s.Mutex, s.Before.ID, s.After.ID)
		},
	}
	cfg.OnChange(client.State{Mutex: "leader", After: client.Owner{ID: "shop-1", Token: 7}})
	// Output: leader: "", then "shop-1"
}

// Run returns nil when its context ends, and only after the last call of OnChange.
func ExampleObserver_Run() {
	c, done := connect()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	o, err := c.NewObserver(client.ObserverConfig{
		Mutex: "leader",
		OnChange: func(s client.State) {
			fmt.Println("nobody leads:", s.After.IsZero())
			cancel()
		},
	})
	check(err)
	fmt.Println(o.Run(ctx))
	// Output:
	// nobody leads: true
	// <nil>
}

// A running Observer cannot be started again; a stopped one can.
func ExampleObserver_Start() {
	c, done := connect()
	defer done()
	o, err := c.NewObserver(client.ObserverConfig{Mutex: "leader", OnChange: func(client.State) {}})
	check(err)
	fmt.Println(o.Start())
	fmt.Println(o.Start())
	check(o.Stop(context.Background()))
	fmt.Println(o.Start())
	check(o.Stop(context.Background()))
	// Output:
	// <nil>
	// start the observer of leader: already in use
	// <nil>
}

func ExampleObserver_Stop() {
	c, done := connect()
	defer done()
	o, err := c.NewObserver(client.ObserverConfig{Mutex: "leader", OnChange: func(client.State) {}})
	check(err)
	fmt.Println(o.Stop(context.Background())) // never started
	// Output: <nil>
}

// Stop the Observer when it has seen an owner.
func ExampleObserver_Quit() {
	c, done := connect()
	defer done()
	r, err := registry.New(c, registry.Config{Prefix: "orders", ID: "shop-1"})
	check(err)
	defer r.Close()
	lock, err := r.Obtain("4711")
	check(err)
	check(lock.Lock(context.Background(), r.NewHolder()))

	var o *client.Observer
	o, err = c.NewObserver(client.ObserverConfig{
		Mutex: "orders:4711",
		OnChange: func(s client.State) {
			if !s.After.IsZero() {
				fmt.Println(s.After.ID)
				o.Quit()
			}
		},
	})
	check(err)
	check(o.Run(context.Background()))
	// Output: shop-1:1
}

func ExampleObserver_Owner() {
	c, done := connect()
	defer done()
	r, err := registry.New(c, registry.Config{Prefix: "orders", ID: "shop-1"})
	check(err)
	defer r.Close()
	lock, err := r.Obtain("4711")
	check(err)
	check(lock.Lock(context.Background(), r.NewHolder()))

	seen := make(chan struct{})
	o, err := c.NewObserver(client.ObserverConfig{
		Mutex:    "orders:4711",
		OnChange: func(client.State) { close(seen) },
	})
	check(err)
	fmt.Println(o.Owner().IsZero())
	check(o.Start())
	<-seen
	fmt.Println(o.Owner().ID)
	check(o.Stop(context.Background()))
	// Output:
	// true
	// shop-1:1
}
