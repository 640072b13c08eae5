// Command worker is a job processor that works while it is the leader, and shows its states.
//
// Run it in two terminals beside `make run`. End the one that works with Ctrl-C, or with kill -9, and
// the other goes on with the work.
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
	mutex = flag.String("mutex", "worker", "whose owner works")
	id    = flag.String("id", "", "who contends; empty means a new id")
	ttl   = flag.Duration("ttl", 3*time.Second, "how long a leader that died may be missed; 1s of transition follows")
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
	worker, err := worker.New(c, worker.Config{
		Mutex: *mutex, ID: *id, TTL: *ttl, Transition: time.Second,
		StartWork: consumer.start,
		StopWork:  consumer.stop,
		Changed:   func(from, to worker.State) { fmt.Printf("%v, was %v\n", to, from) },
	})
	if err != nil {
		return err
	}
	return worker.Run(ctx) // and give up in good order, so that the next need not wait for the end of our lease
}

// consumer takes jobs from a queue, so to speak.
type consumer struct {
	done chan struct{} // closed when it has stopped; nil = never started
}

// start has it consume for as long as it has the lock. Whatever it changes should be told the token,
// and turn away a smaller one than it has seen.
func (c *consumer) start(ownership context.Context) error {
	fmt.Printf("acquired, token %d\n", client.Token(ownership))
	c.done = make(chan struct{})
	go func() { // stop waits for it
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

// stop is called when the ownership has ended, or is about to: the job at hand is let finish.
func (c *consumer) stop() error {
	<-c.done
	return nil
}
