package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// Only one process writes the report at a time.
func ExampleClient_Do() {
	c, done := connect()
	defer done()
	err := c.Do(context.Background(), "report", func(ctx context.Context) error {
		fmt.Println("write the report with a token:", client.Token(ctx) != 0)
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// write the report with a token: true
	// <nil>
}

func ExampleClient_TryDo() {
	c, done := connect()
	defer done()
	ctx := context.Background()
	_, err := c.Lock(ctx, "report", client.WithID("shop-1"))
	check(err)
	err = c.TryDo(ctx, "report", func(context.Context) error { return nil })
	if held := new(client.NotAcquiredError); errors.As(err, &held) {
		fmt.Println("leave it to", held.Owner.ID)
	}
	// Output: leave it to shop-1
}

func ExampleClient_Lock() {
	c, done := connect()
	defer done()
	ctx := context.Background()
	l, err := c.Lock(ctx, "report")
	check(err)
	defer l.Unlock(context.WithoutCancel(ctx))
	fmt.Println("work with a token:", l.Token() != 0, "until", l.Context().Err())
	// Output: work with a token: true until <nil>
}

// The context limits the wait.
func ExampleLock() {
	c, done := connect()
	defer done()
	_, err := c.Lock(context.Background(), "report")
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Lock(ctx, "report")
	fmt.Println(errors.Is(err, client.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output: true true
}

func ExampleClient_TryLock() {
	c, done := connect()
	defer done()
	_, err := c.TryLock(context.Background(), "report", client.WithID("shop-1"))
	check(err)
	_, err = c.TryLock(context.Background(), "report")
	fmt.Println(err)
	// Output: lock report: mutex not acquired, shop-1 owns it
}

func ExampleNotAcquiredError() {
	err := error(&client.NotAcquiredError{Mutex: "report", Owner: client.Owner{ID: "shop-1"}, Err: context.DeadlineExceeded})
	fmt.Println(errors.Is(err, client.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	fmt.Println(err)
	// Output:
	// true true
	// lock report: mutex not acquired: context deadline exceeded, shop-1 owns it
}

func ExampleLock_Context() {
	c, done := connect()
	defer done()
	l, err := c.Lock(context.Background(), "report")
	check(err)
	check(l.Unlock(context.Background()))
	fmt.Println(context.Cause(l.Context()))
	// Output: mutex released
}

func ExampleLock_Token() {
	c, done := connect()
	defer done()
	l, err := c.Lock(context.Background(), "report")
	check(err)
	fmt.Println(l.Token() == client.Token(l.Context()))
	// Output: true
}

func ExampleLock_Owner() {
	c, done := connect()
	defer done()
	l, err := c.Lock(context.Background(), "report", client.WithID("shop-1"))
	check(err)
	o := l.Owner()
	fmt.Println(o.ID, o.Token != 0, o.TransitionAt.Sub(o.TTLAt))
	// Output: shop-1 true 2s
}

// A second Unlock does nothing, so a deferred Unlock may follow an explicit one.
func ExampleLock_Unlock() {
	c, done := connect()
	defer done()
	ctx := context.Background()
	l, err := c.Lock(ctx, "report")
	check(err)
	fmt.Println(l.Unlock(ctx), l.Unlock(ctx))
	// Output: <nil> <nil>
}

func ExampleLockOption() {
	c, done := connect()
	defer done()
	_, err := c.Lock(context.Background(), "report", client.WithTTL(48*time.Hour))
	fmt.Println(err)
	// Output: lock report: TTL is 48h0m0s, not 1ms to 24h0m0s
}

// If the process dies, the mutex stays locked for at most a minute.
func ExampleWithTTL() {
	c, done := connect()
	defer done()
	l, err := c.Lock(context.Background(), "report", client.WithTTL(time.Minute))
	check(err)
	check(l.Unlock(context.Background()))
}

func ExampleWithTransition() {
	c, done := connect()
	defer done()
	l, err := c.Lock(context.Background(), "report", client.WithTransition(client.NoTransition))
	check(err)
	check(l.Unlock(context.Background()))
}

// By default the first renewal of this lease is due after 40 minutes.
func ExampleWithRenewal() {
	c, done := connect()
	defer done()
	l, err := c.Lock(context.Background(), "report", client.WithTTL(time.Hour), client.WithRenewal(10*time.Millisecond))
	check(err)
	for begun := l.Owner().TTLAt; l.Owner().TTLAt.Equal(begun); {
		time.Sleep(time.Millisecond)
	}
	fmt.Println("renewed")
	// Output: renewed
}

func ExampleWithID() {
	c, done := connect()
	defer done()
	ctx := context.Background()
	_, err := c.Lock(ctx, "report", client.WithID("shop-1"))
	check(err)
	o, err := c.Owner(ctx, "report")
	check(err)
	fmt.Println(o.ID)
	// Output: shop-1
}

// A resource checks the token before it acts.
func ExampleClient_Check() {
	c, done := connect()
	defer done()
	ctx := context.Background()
	l, err := c.Lock(ctx, "report")
	check(err)
	holds, err := c.Check(ctx, "report", l.Token())
	check(err)
	fmt.Println(holds)
	check(l.Unlock(ctx))
	holds, err = c.Check(ctx, "report", l.Token())
	check(err)
	fmt.Println(holds)
	// Output:
	// true
	// false
}
