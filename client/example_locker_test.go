package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

func ExampleLocker() {
	c, done := connect()
	defer done()
	locker, err := c.NewLocker(client.LockerConfig{Mutex: "report", TTL: 10 * time.Second, Transition: 2 * time.Second})
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	ownership, err := locker.Lock(ctx)
	check(err)
	defer locker.Close()
	fmt.Println("work with token", client.Token(ownership), "until", ownership.Err())
	// Output: work with token 1 until <nil>
}

func ExampleLockerConfig() {
	c, done := connect()
	defer done()
	_, err := c.NewLocker(client.LockerConfig{Mutex: "report", TTL: 48 * time.Hour})
	fmt.Println(err)
	// Output: TTL is 48h0m0s, not 1ms to 24h0m0s
}

func newLocker(c *client.Client) *client.Locker {
	l, err := c.NewLocker(client.LockerConfig{Mutex: "report", TTL: 10 * time.Second})
	check(err)
	return l
}

func ExampleClient_NewLocker() {
	c, done := connect()
	defer done()
	_, err := c.NewLocker(client.LockerConfig{Mutex: "quarterly report", TTL: 10 * time.Second})
	fmt.Println(err != nil)
	// Output: true
}

// A timeout comes by the context.
func ExampleLocker_Lock() {
	c, done := connect()
	defer done()
	a, b := newLocker(c), newLocker(c)
	_, err := a.Lock(context.Background())
	check(err)
	defer a.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = b.Lock(ctx)
	fmt.Println(errors.Is(err, client.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleLocker_TryLock() {
	c, done := connect()
	defer done()
	a, b := newLocker(c), newLocker(c)
	_, err := a.TryLock(context.Background())
	check(err)
	defer a.Close()
	_, err = b.TryLock(context.Background())
	fmt.Println(errors.Is(err, client.ErrNotAcquired))
	_, err = a.TryLock(context.Background())
	fmt.Println(err)
	// Output:
	// true
	// lock report: it is in use
}

func ExampleLocker_Unlock() {
	c, done := connect()
	defer done()
	ctx, l := context.Background(), newLocker(c)
	ownership, err := l.Lock(ctx)
	check(err)
	fmt.Println(l.Unlock(ctx))
	fmt.Println(context.Cause(ownership))
	fmt.Println(l.Unlock(ctx))
	// Output:
	// <nil>
	// the mutex is given up
	// unlock report: it is not locked
}

func ExampleLocker_Close() {
	c, done := connect()
	defer done()
	l := newLocker(c)
	_, err := l.Lock(context.Background())
	check(err)
	fmt.Println(l.Close(), l.Close())
	// Output: <nil> <nil>
}
