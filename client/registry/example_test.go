package registry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

// Lock a key for a piece of work.
func ExampleRegistry() {
	c, done := connect()
	defer done()
	r, err := registry.New(c, registry.Config{Prefix: "orders"})
	check(err)
	defer r.Close()

	ctx, me := context.Background(), r.NewHolder()
	lock, err := r.Obtain("4711")
	check(err)
	check(lock.Lock(ctx, me))
	own := lock.Context(me) // ends when the lock is lost
	fmt.Println("working:", own.Err() == nil)
	check(lock.Unlock(ctx, me))
	fmt.Println("afterwards:", context.Cause(own))
	// Output:
	// working: true
	// afterwards: mutex released
}

func ExampleNew() {
	c, done := connect()
	defer done()
	_, err := registry.New(c, registry.Config{Prefix: "orders", ExpireAfter: time.Microsecond})
	fmt.Println(err)
	// Output: ExpireAfter is 1µs, not 1ms to 24h0m0s
}

func ExampleConfig() {
	cfg := registry.Config{
		Prefix:      "orders",         // the lock of 4711 is the mutex orders:4711
		ExpireAfter: 30 * time.Second, // if nobody unlocks the lock
		Mode:        registry.Spin,    // ask repeatedly, without a queue entry
		SpinEvery:   50 * time.Millisecond,
		Capacity:    1000,
	}
	fmt.Println(cfg.Mode, cfg.ExpireAfter)
	// Output: Spin 30s
}

func ExampleMode() {
	var mode registry.Mode
	fmt.Println(mode, registry.Spin)
	// Output: Notified Spin
}

func ExampleMode_String() {
	fmt.Println(registry.Notified.String())
	// Output: Notified
}

// The contender ids of the locks begin with the registry's id. SIMBA.OWNER shows them.
func ExampleRegistry_ID() {
	c, done := connect()
	defer done()
	r, err := registry.New(c, registry.Config{Prefix: "orders", ID: "shop-1"})
	check(err)
	defer r.Close()
	lock, err := r.Obtain("4711")
	check(err)
	ctx := context.Background()
	check(lock.Lock(ctx, r.NewHolder()))
	owner, err := c.Owner(ctx, "orders:4711")
	check(err)
	fmt.Println(r.ID(), owner.ID)
	// Output: shop-1 shop-1:1
}

func ExampleRegistry_Obtain() {
	c, done := connect()
	defer done()
	r, err := registry.New(c, registry.Config{Prefix: "orders"})
	check(err)
	defer r.Close()
	one, err := r.Obtain("4711")
	check(err)
	again, err := r.Obtain("4711")
	check(err)
	_, err = r.Obtain("not a name")
	fmt.Println(one == again, err != nil)
	// Output: true true
}

// Each holder has the role of a thread in Java.
func ExampleRegistry_NewHolder() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	ctx, me, another := context.Background(), r.NewHolder(), r.NewHolder()
	for _, h := range []*registry.Holder{me, me, another} {
		ok, err := lock.TryLock(ctx, h)
		check(err)
		fmt.Println(ok)
	}
	// Output:
	// true
	// true
	// false
}

// A function that has locked a key may call another one that locks it with the same holder.
func ExampleHolder() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
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
		fmt.Println("paid")
		ship(h)
	}
	pay(r.NewHolder())
	fmt.Println("locked:", lock.IsHeldInThisProcess())
	// Output:
	// paid
	// shipped
	// locked: false
}

func ExampleRegistry_ExpireUnusedOlderThan() {
	c, done := connect()
	defer done()
	r, err := registry.New(c, registry.Config{Prefix: "orders"})
	check(err)
	defer r.Close()
	for i := range 10 {
		_, err := r.Obtain(fmt.Sprint(i))
		check(err)
	}
	fmt.Println(r.ExpireUnusedOlderThan(time.Hour))
	// Output: 0
}

func ExampleRegistry_Close() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	ctx, me := context.Background(), r.NewHolder()
	check(lock.Lock(ctx, me))
	check(r.Close()) // unlocks
	owner, err := c.Owner(ctx, "orders:4711")
	check(err)
	fmt.Println(owner.IsZero(), errors.Is(lock.Lock(ctx, me), client.ErrClosed))
	// Output: true true
}
