// Command worker is a job processor that works while it is the leader, and prints what happens.
//
// Start a server with `make run`, and this program in two other terminals. End the working program
// with Ctrl-C or kill -9, and the other begins to work.
package main

import (
	"context"
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
	mutex = flag.String("mutex", "worker", "the mutex; its owner works")
	id    = flag.String("id", "", "the contender's id; empty means a new one")
	ttl   = flag.Duration("ttl", 3*time.Second, "TTL of the lease; a transition window of 1s follows")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := work(ctx); err != nil {
		log.Fatal(err)
	}
}

func work(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{
		TTL: *ttl, Transition: time.Second,
		Hook: func(_ context.Context, e client.Event) { fmt.Println("-", e.Kind) },
	})
	if err != nil {
		return err
	}
	defer c.Close()

	// Lead also releases the mutex, so that the next owner need not wait.
	err = c.Lead(ctx, *mutex, process, client.WithID(*id))
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// process stands for a consumer that takes jobs from a queue, until its ownership ends. When it has
// returned, another process may begin. A real program sends the fencing token with each change, and
// the resource refuses a token that is smaller than the largest so far.
func process(ownership context.Context) error {
	fmt.Printf("acquired, token %d\n", client.Token(ownership))
	for ownership.Err() == nil {
		fmt.Println("working")
		select {
		case <-time.After(time.Second):
		case <-ownership.Done():
		}
	}
	fmt.Println("stopped")
	return nil
}
