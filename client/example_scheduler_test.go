package client_test

import (
	"context"
	"fmt"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// If many processes run this Scheduler, only one of them does the work.
func ExampleScheduler() {
	c, done := connect()
	defer done()
	beats := make(chan int)
	n := 0
	s, err := c.NewScheduler(client.ScheduleConfig{
		Mutex: "cleanup", TTL: 10 * time.Second, Transition: 2 * time.Second,
		Period: 10 * time.Millisecond,
		Work: func(ownership context.Context) error {
			n++
			select {
			case beats <- n:
			case <-ownership.Done():
			}
			return nil
		},
	})
	check(err)
	check(s.Start())
	fmt.Println(<-beats, <-beats, <-beats)
	check(s.Stop(context.Background()))
	// Output: 1 2 3
}

func ExampleClient_NewScheduler() {
	c, done := connect()
	defer done()
	_, err := c.NewScheduler(client.ScheduleConfig{Mutex: "cleanup", TTL: 10 * time.Second})
	fmt.Println(err)
	// Output: Period is 0s, not more than 0
}

func ExampleScheduleConfig() {
	cfg := client.ScheduleConfig{
		Mutex:        "cleanup",
		TTL:          10 * time.Second,
		Transition:   2 * time.Second,
		InitialDelay: time.Second,
		Period:       time.Minute,
		Strategy:     client.FixedDelay,
		Work: func(ownership context.Context) error {
			_, err := fmt.Println("clean up with token", client.Token(ownership))
			return err
		},
	}
	check(cfg.Work(context.Background()))
	// Output: clean up with token 0
}

func ExampleStrategy() {
	var s client.Strategy
	fmt.Println(s == client.FixedRate)
	// Output: true
}

func ExampleStrategy_String() {
	fmt.Println(client.FixedRate, client.FixedDelay)
	// Output: FixedRate FixedDelay
}
