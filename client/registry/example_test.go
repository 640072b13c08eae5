package registry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

// orders returns a registry, and the lock of one order.
func orders(c *client.Client, expireAfter time.Duration) (*registry.Registry, *registry.Lock) {
	r, err := registry.New(c, registry.Config{Prefix: "orders", ExpireAfter: expireAfter})
	check(err)
	return r, r.Obtain("4711") // the mutex orders:4711
}

// A function that has locked a key may call another one that locks it with the same holder.
func ExampleRegistry() {
	c, done := connect()
	defer done()
	r, lock := orders(c, time.Minute)
	defer r.Close()
	ctx := context.Background()
	ship := func(h *registry.Holder) {
		check(lock.Lock(ctx, h))
		defer lock.Unlock(ctx, h)
		fmt.Println("shipped")
	}
	pay := func(h *registry.Holder) {
		check(lock.Lock(ctx, h))
		defer lock.Unlock(ctx, h)
		fmt.Println("paid, with a token:", client.Token(lock.Context(h)) != 0)
		ship(h)
	}
	pay(r.NewHolder())
	fmt.Println("locked:", lock.IsHeldInThisProcess())
	// Output:
	// paid, with a token: true
	// shipped
	// locked: false
}

// Two registries stand for two processes.
func ExampleLock_TryLockFor() {
	c, done := connect()
	defer done()
	r, lock := orders(c, time.Minute)
	defer r.Close()
	other, theirs := orders(c, time.Minute)
	defer other.Close()
	ctx, me, they := context.Background(), r.NewHolder(), other.NewHolder()
	check(theirs.Lock(ctx, they))
	fmt.Println(lock.TryLock(ctx, me))
	time.AfterFunc(50*time.Millisecond, func() { check(theirs.Unlock(ctx, they)) })
	fmt.Println(lock.TryLockFor(ctx, me, time.Minute))
	// Output:
	// false <nil>
	// true <nil>
}

// The work took longer than the lease.
func ExampleLock_Context() {
	c, done := connect()
	defer done()
	r, lock := orders(c, 50*time.Millisecond)
	defer r.Close()
	ctx, me := context.Background(), r.NewHolder()
	check(lock.Lock(ctx, me))
	own := lock.Context(me)
	<-own.Done()
	fmt.Println(context.Cause(own))
	fmt.Println(errors.Is(lock.Unlock(ctx, me), client.ErrLost))
	// Output:
	// mutex lost
	// true
}
