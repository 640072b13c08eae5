package registry_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

// orders returns the registry of a process, and the lock of one order.
func orders(c *client.Client) (*registry.Registry, *registry.Lock) {
	r, err := registry.New(c, registry.Config{Prefix: "orders", ExpireAfter: 10 * time.Second})
	check(err)
	lock, err := r.Obtain("4711")
	check(err)
	return r, lock
}

func ExampleLock() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	ctx, me := context.Background(), r.NewHolder()
	check(lock.Lock(ctx, me))
	fmt.Println(lock.Key(), lock.IsHeldInThisProcess(), lock.Token() == client.Token(lock.Context(me)))
	check(lock.Unlock(ctx, me))
	fmt.Println(lock.Key(), lock.IsHeldInThisProcess(), lock.Token())
	// Output:
	// 4711 true true
	// 4711 false 0
}

func ExampleLock_Key() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	fmt.Println(lock.Key())
	// Output: 4711
}

// Two registries stand for two processes. A context limits the wait.
func ExampleLock_Lock() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	other, theirs := orders(c)
	defer other.Close()
	check(theirs.Lock(context.Background(), other.NewHolder()))

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	err := lock.Lock(ctx, r.NewHolder())
	fmt.Println(errors.Is(err, client.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleLock_TryLock() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	other, theirs := orders(c)
	defer other.Close()
	ctx, me, they := context.Background(), r.NewHolder(), other.NewHolder()
	check(theirs.Lock(ctx, they))
	fmt.Println(lock.TryLock(ctx, me))
	check(theirs.Unlock(ctx, they))
	fmt.Println(lock.TryLock(ctx, me))
	// Output:
	// false <nil>
	// true <nil>
}

func ExampleLock_TryLockFor() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	other, theirs := orders(c)
	defer other.Close()
	ctx, they := context.Background(), other.NewHolder()
	check(theirs.Lock(ctx, they))
	time.AfterFunc(50*time.Millisecond, func() { check(theirs.Unlock(ctx, they)) })
	fmt.Println(lock.TryLockFor(ctx, r.NewHolder(), time.Minute))
	// Output: true <nil>
}

func ExampleLock_Unlock() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	ctx, me := context.Background(), r.NewHolder()
	check(lock.Lock(ctx, me))
	fmt.Println(lock.Unlock(ctx, r.NewHolder()))
	fmt.Println(lock.Unlock(ctx, me))
	// Output:
	// you do not own the lock at orders:4711
	// <nil>
}

// The work took longer than the lease.
func ExampleLock_Context() {
	c, done := connect()
	defer done()
	r, err := registry.New(c, registry.Config{Prefix: "orders", ExpireAfter: 50 * time.Millisecond})
	check(err)
	defer r.Close()
	lock, err := r.Obtain("4711")
	check(err)
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

func ExampleLock_IsHeldInThisProcess() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	other, theirs := orders(c)
	defer other.Close()
	check(theirs.Lock(context.Background(), other.NewHolder()))
	fmt.Println(lock.IsHeldInThisProcess(), theirs.IsHeldInThisProcess())
	// Output: false true
}

// Send the token with each write to the protected resource, so that it can refuse smaller ones.
func ExampleLock_Token() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	ctx, me := context.Background(), r.NewHolder()
	check(lock.Lock(ctx, me))
	first := lock.Token()
	check(lock.Unlock(ctx, me))
	check(lock.Lock(ctx, me))
	fmt.Println(lock.Token() > first)
	// Output: true
}

func ExampleErrNotHolder() {
	c, done := connect()
	defer done()
	r, lock := orders(c)
	defer r.Close()
	err := lock.Unlock(context.Background(), r.NewHolder())
	fmt.Println(errors.Is(err, registry.ErrNotHolder))
	// Output: true
}
