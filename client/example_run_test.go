package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// Run lasts until its context ends, as errgroup needs it. It returns when the mutex is released.
func ExampleContender_Run() {
	c, done := connect()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	k, err := c.NewContender(client.ContenderConfig{
		Mutex: "leader",
		OnAcquired: func(ownership context.Context, _ client.State) {
			fmt.Println("lead")
			cancel()
			<-ownership.Done()
			fmt.Println("follow")
		},
	})
	check(err)
	fmt.Println(k.Run(ctx))
	// Output:
	// lead
	// follow
	// <nil>
}

// Quit may be called in a callback. Run then returns.
func ExampleContender_Quit() {
	c, done := connect()
	defer done()
	var k *client.Contender
	k, err := c.NewContender(client.ContenderConfig{
		Mutex:      "leader",
		OnAcquired: func(context.Context, client.State) { k.Quit() },
	})
	check(err)
	fmt.Println(k.Run(context.Background()))
	// Output: <nil>
}

// No other contender waits, so the contender becomes the leader again, with a new token.
func ExampleContender_Resign() {
	c, done := connect()
	defer done()
	var k *client.Contender
	var first client.Owner
	k, err := c.NewContender(client.ContenderConfig{
		Mutex: "leader",
		OnAcquired: func(_ context.Context, s client.State) {
			if first.Token == 0 {
				first = s.After
				k.Resign()
				return
			}
			fmt.Println("leader again, with a larger token:", s.After.Token > first.Token)
			k.Quit()
		},
	})
	check(err)
	check(k.Run(context.Background()))
	// Output: leader again, with a larger token: true
}

func ExampleScheduler_Run() {
	c, done := connect()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := c.NewScheduler(client.ScheduleConfig{
		Mutex: "cleanup", Period: time.Hour,
		Work: func(context.Context) error {
			fmt.Println("clean up")
			cancel()
			return nil
		},
	})
	check(err)
	fmt.Println(s.Run(ctx))
	// Output:
	// clean up
	// <nil>
}
