// Command contend contends for leadership as long as it runs, and prints when it is the leader.
//
// Start a server with `make run`, and this program in two other terminals. The first program
// becomes the leader. End it with Ctrl-C or kill -9, and the second program becomes the leader.
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
	mutex = flag.String("mutex", "leader", "the mutex to contend for")
	id    = flag.String("id", "", "the contender's id; empty means a new one")
	ttl   = flag.Duration("ttl", 3*time.Second, "TTL of the lease; a transition window of 1s follows")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := contend(ctx); err != nil {
		log.Fatal(err)
	}
}

func contend(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()

	// Lead also releases the mutex, so that the next leader need not wait.
	err = c.Lead(ctx, *mutex, lead, client.WithID(*id), client.WithTTL(*ttl), client.WithTransition(time.Second))
	if ctx.Err() != nil { // Ctrl-C
		return nil
	}
	return err
}

// lead works until the tenure ends. A real program sends the fencing token with each change, and
// the resource refuses a token that is smaller than the largest so far.
func lead(ctx context.Context) error {
	fmt.Printf("acquired, token %d\n", client.Token(ctx))
	for ctx.Err() == nil {
		fmt.Println("working")
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	fmt.Println("stopped working:", context.Cause(ctx))
	return nil
}
