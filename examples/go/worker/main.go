// Command worker is a job processor that works while it is the leader, and prints its states.
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
	"github.com/simba-resp/simba-resp/client/worker"
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
	c, err := client.New(rdb, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()

	var consumer consumer
	w := worker.Worker{
		Client: c, Mutex: *mutex,
		StartWork: consumer.start,
		StopWork:  consumer.stop,
		Changed:   func(from, to worker.State) { fmt.Printf("%v, was %v\n", to, from) },
	}
	// Run also releases the mutex, so that the next owner need not wait.
	return w.Run(ctx, client.WithID(*id), client.WithTTL(*ttl), client.WithTransition(time.Second))
}

// consumer stands for a consumer that takes jobs from a queue.
type consumer struct {
	done chan struct{} // closed when the consumer has stopped; nil = never started
}

// start consumes jobs until the ownership ends. A real program sends the fencing token with each
// change, and the resource refuses a token that is smaller than the largest so far.
func (c *consumer) start(ownership context.Context) error {
	fmt.Printf("acquired, token %d\n", client.Token(ownership))
	c.done = make(chan struct{})
	go func() { // stop waits for this goroutine
		defer close(c.done)
		for ownership.Err() == nil {
			fmt.Println("working")
			select {
			case <-time.After(time.Second):
			case <-ownership.Done():
			}
		}
	}()
	return nil
}

// stop waits until the current job is finished.
func (c *consumer) stop() error {
	<-c.done
	return nil
}
