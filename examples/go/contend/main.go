// Command contend wants to be the leader for as long as it runs, and says when it is.
//
// Run it in two terminals beside `make run`: the first becomes the leader. End it with Ctrl-C, or with
// kill -9, and see the other take over.
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
	mutex = flag.String("mutex", "leader", "what to contend for")
	id    = flag.String("id", "", "who contends; empty means a new id")
	ttl   = flag.Duration("ttl", 3*time.Second, "how long a leader that died may be missed; 1s of transition follows")
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

	contender, err := c.NewContender(client.ContenderConfig{
		Mutex: *mutex, ID: *id, TTL: *ttl, Transition: time.Second,
		OnAcquired: lead,
		OnReleased: func(client.State) { fmt.Println("released") },
	})
	if err != nil {
		return err
	}
	return contender.Run(ctx) // and give up in good order, so that the next need not wait for the end of our lease
}

// lead works until the ownership ends. Whatever it changes should be told the token, and turn
// away a smaller one than it has seen.
func lead(ownership context.Context, _ client.State) {
	fmt.Printf("acquired, token %d\n", client.Token(ownership))
	for ownership.Err() == nil {
		fmt.Println("working")
		select {
		case <-time.After(time.Second):
		case <-ownership.Done():
		}
	}
	fmt.Println("stopped working:", context.Cause(ownership))
}
