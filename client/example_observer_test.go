package client_test

import (
	"context"
	"fmt"

	"github.com/simba-resp/simba-resp/client"
)

// Who wants nothing sees who has it.
func ExampleObserver() {
	c, done := connect()
	defer done()
	changes := make(chan client.State)
	o, err := c.NewObserver(client.ObserverConfig{
		Mutex:    "orders:4711",
		OnChange: func(s client.State) { changes <- s },
	})
	check(err)
	check(o.Start())

	r, err := c.NewRegistry(client.RegistryConfig{Prefix: "orders", ID: "shop-1"})
	check(err)
	defer r.Close()
	lock, err := r.Obtain("4711")
	check(err)
	ctx, me := context.Background(), r.NewHolder()
	check(lock.Lock(ctx, me))
	s := <-changes
	fmt.Printf("%q, then %q\n", s.Before.ID, s.After.ID)
	check(lock.Unlock(ctx, me))
	s = <-changes
	fmt.Printf("%q, then %q\n", s.Before.ID, s.After.ID)
	check(o.Stop(ctx))
	// Output:
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
		Mutex:    "leader",
		OnChange: func(s client.State) { fmt.Printf("%s: %q, then %q\n", s.Mutex, s.Before.ID, s.After.ID) },
	}
	cfg.OnChange(client.State{Mutex: "leader", After: client.Owner{ID: "shop-1", Token: 7}})
	// Output: leader: "", then "shop-1"
}

// An Observer runs once at a time, and may be started again when it is stopped.
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
	// it is in use
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

func ExampleObserver_Owner() {
	c, done := connect()
	defer done()
	seen := make(chan struct{})
	o, err := c.NewObserver(client.ObserverConfig{Mutex: "orders:4711", OnChange: func(client.State) { close(seen) }})
	check(err)
	r, err := c.NewRegistry(client.RegistryConfig{Prefix: "orders", ID: "shop-1"})
	check(err)
	lock, err := r.Obtain("4711")
	check(err)
	check(lock.Lock(context.Background(), r.NewHolder()))
	fmt.Println(o.Owner().IsZero())
	check(o.Start())
	<-seen
	fmt.Println(o.Owner().ID)
	check(o.Stop(context.Background()))
	check(r.Close())
	// Output:
	// true
	// shop-1:1
}
