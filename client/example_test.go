package client_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/testserver"
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

// The context limits the wait.
func ExampleClient_Lock() {
	c, done := connect()
	defer done()
	l, err := c.Lock(context.Background(), "report")
	check(err)
	defer l.Unlock(context.Background())
	fmt.Println("work until", l.Context().Err())

	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Lock(ctx, "report")
	fmt.Println(errors.Is(err, client.ErrNotAcquired), errors.Is(err, context.DeadlineExceeded))
	// Output:
	// work until <nil>
	// true true
}

// A leader that leads twice, and then ends.
func ExampleClient_Lead() {
	c, done := connect()
	defer done()
	tenures := 0
	err := c.Lead(context.Background(), "leader", func(ctx context.Context) error {
		fmt.Println("lead with a token:", client.Token(ctx) != 0)
		if tenures++; tenures == 2 {
			return client.Final(nil)
		}
		return nil // contend again
	})
	fmt.Println(err)
	// Output:
	// lead with a token: true
	// lead with a token: true
	// <nil>
}

func ExampleClient_Every() {
	c, done := connect()
	defer done()
	runs := 0
	err := c.Every(context.Background(), "cleanup", client.Schedule{Period: 10 * time.Millisecond}, func(context.Context) error {
		runs++
		fmt.Println("run", runs)
		if runs == 3 {
			return client.Final(nil)
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// run 1
	// run 2
	// run 3
	// <nil>
}

func ExampleClient_Watch() {
	c, done := connect()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var l *client.Lock
	for s, err := range c.Watch(ctx, "report") {
		check(err)
		fmt.Printf("%q, owner %q\n", s.Event, s.Owner.ID)
		switch s.Event {
		case "": // the present state
			l, err = c.Lock(ctx, "report", client.WithID("shop-1"))
			check(err)
		case "acquired":
			check(l.Unlock(ctx))
		case "released":
			cancel()
		}
	}
	// Output:
	// "", owner ""
	// "acquired", owner "shop-1"
	// "released", owner ""
}

// A resource checks the token before it acts.
func ExampleClient_Check() {
	c, done := connect()
	defer done()
	ctx := context.Background()
	l, err := c.Lock(ctx, "report")
	check(err)
	fmt.Println(c.Check(ctx, "report", l.Token()))
	check(l.Unlock(ctx))
	fmt.Println(c.Check(ctx, "report", l.Token()))
	// Output:
	// true <nil>
	// false <nil>
}

// Note each lost mutex, and each work.
func ExampleEvent() {
	c, done := testserver.ConnectWith(client.Options{Hook: func(_ context.Context, e client.Event) {
		switch e.Kind {
		case "Lost":
			fmt.Println(e.Mutex, "lost after", e.Took, "expired:", e.Expired)
		case "WorkDone":
			fmt.Println(e.Mutex, "done with a token:", e.Token != 0, "error:", e.Err)
		}
	}})
	defer done()
	check(c.Do(context.Background(), "report", func(context.Context) error { return nil }))
	// Output: report done with a token: true error: <nil>
}
