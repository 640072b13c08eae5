// Command registry repeatedly locks the reentrant lock of a key. Under each lock it does some
// pieces of work.
//
// Start a server with `make run`, and this program in two other terminals. The two programs lock
// alternately. End the working program with kill -9, and the other gets the lock when the lease
// ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
)

var (
	addr   = flag.String("addr", "127.0.0.1:7379", "the server's `host:port`")
	key    = flag.String("mutex", "job", "the key: the mutex is examples:key")
	ttl    = flag.Duration("ttl", 3*time.Second, "the lease: how long a lock lasts if nobody unlocks it")
	pieces = flag.Int("pieces", 3, "how many pieces of work to do under one lock")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()

	locks, err := registry.New(c, registry.Config{Prefix: "examples", ExpireAfter: *ttl})
	if err != nil {
		return err
	}
	defer locks.Close()
	lock := locks.Obtain(*key)
	holder := locks.NewHolder() // each goroutine that locks needs its own holder

	for ctx.Err() == nil {
		err := batch(ctx, lock, holder)
		switch {
		case errors.Is(err, context.Canceled): // Ctrl-C
		case errors.Is(err, client.ErrLost):
			fmt.Println("lost:", err)
		case err != nil:
			return err
		}
	}
	return nil
}

// batch does some pieces of work under one lock.
func batch(ctx context.Context, lock *registry.Lock, holder *registry.Holder) error {
	if err := lock.Lock(ctx, holder); err != nil {
		return err
	}
	fmt.Printf("acquired, token %d\n", client.Token(lock.Context(holder)))
	var err error
	for n := 0; n < *pieces && err == nil && ctx.Err() == nil; n++ {
		err = piece(ctx, lock, holder)
	}
	unlocked := lock.Unlock(context.Background(), holder) // also after Ctrl-C
	if unlocked == nil {
		fmt.Println("released")
	}
	return errors.Join(err, unlocked)
}

// piece does one piece of work. It locks the lock once more, which renews the lease.
func piece(ctx context.Context, lock *registry.Lock, holder *registry.Holder) (err error) {
	if err := lock.Lock(ctx, holder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(context.Background(), holder)) }()
	fmt.Println("working")
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	case <-lock.Context(holder).Done():
	}
	return nil
}
