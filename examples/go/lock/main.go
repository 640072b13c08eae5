// Command lock locks a mutex for one piece of work, and ends.
//
// Start a server with `make run`, and this program in two other terminals. The second program waits
// until the first has done its work, or until you end the first with Ctrl-C or kill -9.
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
)

var (
	addr  = flag.String("addr", "127.0.0.1:7379", "the server's `host:port`")
	mutex = flag.String("mutex", "job", "the mutex to lock")
	ttl   = flag.Duration("ttl", 3*time.Second, "TTL of the lease; a transition window of 1s follows")
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
	c, err := client.New(rdb, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()

	err = c.Do(ctx, *mutex, do, client.WithTTL(*ttl), client.WithTransition(time.Second))
	switch {
	case ctx.Err() != nil && !errors.Is(err, client.ErrLost):
		return nil // Ctrl-C
	case err != nil: // ErrLost: another owner may have changed what the mutex protects
		return err
	}
	fmt.Println("released")
	return nil
}

// do works until the work is done, Ctrl-C ends the program, or the lock is lost. A real program
// sends the fencing token with each change, and the resource refuses a token that is smaller than
// the largest so far.
func do(ctx context.Context) error {
	fmt.Printf("acquired, token %d\n", client.Token(ctx))
	done := time.After(*work)
	for ctx.Err() == nil {
		fmt.Println("working")
		select {
		case <-time.After(time.Second):
		case <-done:
			return nil
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}
