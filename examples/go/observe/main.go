// Command observe prints the owner of a mutex and does not contend for it.
//
// Run it together with one of the other examples. Use the same `--mutex`.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

var (
	addr  = flag.String("addr", "127.0.0.1:7379", "the server's `host:port`")
	mutex = flag.String("mutex", "leader", "the mutex to observe")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := observe(ctx); err != nil {
		log.Fatal(err)
	}
}

func observe(ctx context.Context) error {
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()

	for s, err := range c.Watch(ctx, *mutex) { // until ctx ends
		switch {
		case err != nil:
			log.Print(err) // Watch tries again
		case s.Owner.IsZero():
			fmt.Println("nobody owns it")
		default:
			fmt.Printf("%s owns it, token %d\n", s.Owner.ID, s.Owner.Token)
		}
	}
	return nil
}
