// Command lock takes a mutex for one piece of work, and ends.
//
// Run it in two terminals beside `make run`: the second waits until the first has done its work. Or end
// the first with Ctrl-C, or with kill -9, in the middle of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

var (
	addr  = flag.String("addr", "127.0.0.1:7379", "the server's `host:port`")
	mutex = flag.String("mutex", "job", "what to lock")
	ttl   = flag.Duration("ttl", 3*time.Second, "how long a holder that died may be missed; 1s of transition follows")
	work  = flag.Duration("work", 10*time.Second, "how long the work takes")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := lock(ctx); err != nil {
		log.Fatal(err)
	}
}

func lock(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{Logger: slog.Default()})
	if err != nil {
		return err
	}
	defer c.Close()

	// A Locker has a new contender id for each lock.
	locker, err := c.NewLocker(client.LockerConfig{Mutex: *mutex, TTL: *ttl, Transition: time.Second})
	if err != nil {
		return err
	}
	defer locker.Close()

	ownership, err := locker.Lock(ctx)
	if errors.Is(err, context.Canceled) {
		return nil // Ctrl-C
	}
	if err != nil {
		return err
	}
	fmt.Printf("acquired, token %d\n", client.Token(ownership))

	do(ctx, ownership)

	// The lock may have been lost meanwhile: then others may have changed what it protects.
	giveUp, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := locker.Unlock(giveUp); err != nil {
		return err
	}
	fmt.Println("released")
	return nil
}

// do works until it is done, is to stop, or the lock is lost. Whatever it changes should be told
// the token, and turn away a smaller one than it has seen.
func do(ctx, ownership context.Context) {
	done := time.After(*work)
	for ctx.Err() == nil && ownership.Err() == nil {
		fmt.Println("working")
		select {
		case <-time.After(time.Second):
		case <-done:
			return
		case <-ctx.Done():
		case <-ownership.Done():
		}
	}
}
