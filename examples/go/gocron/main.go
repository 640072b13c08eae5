// Command gocron runs a job of gocron on one of many processes, by a Locker or by an Elector.
//
// Start a server with `make run`, and this program in two other terminals. With `--by locker` the
// process that first locks a job runs it. With `--by elector` one process runs all jobs until it
// ends.
//
// If the mutex is lost while a job runs, the job continues, because gocron does not pass the
// context of the lock to the job. For a job that must stop in this case, use Client.Every.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

var (
	addr  = flag.String("addr", "127.0.0.1:7379", "the server's `host:port`")
	by    = flag.String("by", "locker", "how processes share the job: `locker or elector`")
	every = flag.Duration("every", time.Second, "the period of the job")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	if err := run(ctx, rdb, *by, *every, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run runs the job until ctx ends, and releases all locks.
func run(ctx context.Context, rdb *redis.Client, by string, every time.Duration, out io.Writer) error {
	c, err := client.New(rdb, client.Options{})
	if err != nil {
		return err
	}
	defer c.Close()
	var shared gocron.SchedulerOption
	refused := make(chan error, 1)
	switch by {
	case "locker":
		shared = gocron.WithDistributedLocker(locker{c, every / 2})
	case "elector":
		e := new(elector)
		go func() { refused <- e.lead(context.WithoutCancel(ctx), c, "gocron") }() // until c.Close
		shared = gocron.WithDistributedElector(e)
	default:
		return fmt.Errorf("--by is %q, not locker or elector", by)
	}
	s, err := gocron.NewScheduler(shared)
	if err != nil {
		return err
	}
	_, err = s.NewJob(gocron.DurationJob(every), gocron.NewTask(func() { fmt.Fprintln(out, "working") }), gocron.WithName("report"))
	if err != nil {
		return err
	}
	s.Start()
	select {
	case <-ctx.Done():
	case err = <-refused:
	}
	return errors.Join(err, s.Shutdown()) // waits for the job
}
