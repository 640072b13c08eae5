package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/simba-resp/simba-resp/client"
)

// The five everyday tasks, with their errors handled. Each is a function of a program that has a Client.

// lockAround writes the report while nobody else does. It waits for its turn until ctx ends.
func lockAround(ctx context.Context, c *client.Client, write func(context.Context) error) error {
	return c.Do(ctx, "report", write)
}

// tryLock writes the report unless somebody else does.
func tryLock(ctx context.Context, c *client.Client, write func(context.Context) error) error {
	err := c.TryDo(ctx, "report", write)
	if held := new(client.NotAcquiredError); errors.As(err, &held) {
		log.Printf("left to %s", held.Owner.ID)
		return nil
	}
	return err
}

// leaderLoop leads whenever it can, until ctx ends.
func leaderLoop(ctx context.Context, c *client.Client, lead func(context.Context)) error {
	k, err := c.NewContender(client.ContenderConfig{
		Mutex:      "leader",
		OnAcquired: func(ownership context.Context, _ client.State) { lead(ownership) },
	})
	if err != nil {
		return err
	}
	return k.Run(ctx)
}

// scheduledJob cleans up on every full hour, in one of all processes, until ctx ends.
func scheduledJob(ctx context.Context, c *client.Client, cleanUp func(context.Context) error) error {
	s, err := c.NewScheduler(client.ScheduleConfig{Mutex: "cleanup", Period: time.Hour, AlignToClock: true, Work: cleanUp})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// checkedWrite is the resource's side: it refuses who does not own the mutex any more.
func checkedWrite(ctx context.Context, c *client.Client, token uint64, write func() error) error {
	holds, err := c.Check(ctx, "report", token)
	if err != nil {
		return err
	}
	if !holds {
		return fmt.Errorf("token %d: %w", token, client.ErrLost)
	}
	return write()
}

func Example_tasks() {
	c, done := connect()
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	check(lockAround(ctx, c, func(ctx context.Context) error {
		fmt.Println("report, token", client.Token(ctx))
		check(tryLock(ctx, c, func(context.Context) error { panic("two write") }))
		return checkedWrite(ctx, c, client.Token(ctx), func() error { fmt.Println("checked"); return nil })
	}))
	check(leaderLoop(ctx, c, func(ctx context.Context) { fmt.Println("lead"); <-ctx.Done(); fmt.Println("follow") }))
	err := scheduledJob(ctx, c, func(context.Context) error { return nil })
	fmt.Println(err)
	// Output:
	// report, token 1
	// checked
	// lead
	// follow
	// <nil>
}
