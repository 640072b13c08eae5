package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// Five common tasks with error handling. Each function is part of a program that has a Client.

const report, leader, cleanup = "report", "leader", "cleanup" // mutexes

// lockAround writes the report while no other process does. It waits for the mutex until ctx ends.
func lockAround(ctx context.Context, c *client.Client, write func(context.Context) error) error {
	return c.Do(ctx, report, write)
}

// tryLock writes the report unless another process is writing it.
func tryLock(ctx context.Context, c *client.Client, write func(context.Context) error) error {
	err := c.TryDo(ctx, report, write)
	var held *client.NotAcquiredError
	if errors.As(err, &held) && held.Mutex == report {
		log.Printf("left to %s", held.Owner.ID)
		return nil
	}
	return err
}

// leaderLoop contends for leadership until ctx ends, and calls lead each time it is the leader.
func leaderLoop(ctx context.Context, c *client.Client, lead func(context.Context)) error {
	k, err := c.NewContender(client.ContenderConfig{
		Mutex:      leader,
		OnAcquired: func(ownership context.Context, _ client.State) { lead(ownership) },
	})
	if err != nil {
		return err
	}
	return k.Run(ctx)
}

// scheduledJob runs until ctx ends. On every full hour, one of all processes cleans up.
func scheduledJob(ctx context.Context, c *client.Client, cleanUp func(context.Context) error) error {
	s, err := c.NewScheduler(client.ScheduleConfig{Mutex: cleanup, Period: time.Hour, AlignToClock: true, Work: cleanUp})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// checkedWrite is a part of the resource. It refuses a writer whose tenure is over. It does not
// notice a tenure that ends during the write. A resource that can store a number should store the
// largest token, and refuse smaller ones.
func checkedWrite(ctx context.Context, c *client.Client, token uint64, write func() error) error {
	holds, err := c.Check(ctx, report, token)
	if err != nil {
		return err
	}
	if !holds {
		return client.ErrLost
	}
	return write()
}

func Example_tasks() {
	c, done := connect()
	defer done()
	ctx, cancel := context.WithCancel(context.Background())
	var token uint64
	check(lockAround(ctx, c, func(ctx context.Context) error {
		token = client.Token(ctx)
		check(tryLock(ctx, c, func(context.Context) error { panic("two write") }))
		return checkedWrite(ctx, c, token, func() error { fmt.Println("written"); return nil })
	}))
	fmt.Println(checkedWrite(ctx, c, token, func() error { panic("not the owner") }))
	check(leaderLoop(ctx, c, func(context.Context) { fmt.Println("lead"); cancel() }))
	check(scheduledJob(ctx, c, func(context.Context) error { panic("not yet the full hour") }))
	// Output:
	// written
	// mutex lost
	// lead
}
