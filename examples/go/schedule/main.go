// Command schedule does a piece of work every second. If several processes run it, only one of them
// works.
//
// Start a server with `make run`, and this program in two other terminals. End the working program
// with Ctrl-C or kill -9, and the other continues the schedule.
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
	mutex = flag.String("mutex", "schedule", "the mutex; its owner works")
	id    = flag.String("id", "", "the contender's id; empty means a new one")
	ttl   = flag.Duration("ttl", 3*time.Second, "TTL of the lease; a transition window of 1s follows")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := schedule(ctx); err != nil {
		log.Fatal(err)
	}
}

func schedule(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()

	var last uint64                           // the token of the last work
	work := func(ctx context.Context) error { // never called concurrently
		if token := client.Token(ctx); token != last {
			fmt.Printf("acquired, token %d\n", token)
			last = token
		}
		fmt.Println("working")
		return nil
	}
	// Every also releases the mutex, so that the next owner need not wait.
	err = c.Every(ctx, *mutex, client.Schedule{Period: time.Second}, work,
		client.WithID(*id), client.WithTTL(*ttl), client.WithTransition(time.Second))
	if ctx.Err() != nil { // Ctrl-C
		return nil
	}
	return err
}
