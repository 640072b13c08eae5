// Contend is a contender in its own process, for tests that kill or freeze it. It writes one line
// for each event and check. A line begins with the time just before, in nanoseconds of the
// machine's monotonic clock:
//
//	… acquired 7   onAcquired was called
//	… owned 7      the ownership context had not ended
//	… owner        IsOwner returned true
//	… ended 7      the ownership context had ended
//	… released     onReleased was called
//
// SIGTERM stops it.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/contend"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	addr := flag.String("addr", "127.0.0.1:7379", "the server's address")
	check := flag.Duration("check", 2*time.Millisecond, "time between two checks of the ownership")
	mutex := flag.String("mutex", "m", "the mutex to contend for")
	id := flag.String("id", "", "the contender's id")
	ttl := flag.Duration("ttl", 5*time.Second, "TTL window")
	transition := flag.Duration("transition", time.Second, "transition window")
	flag.Parse()

	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer c.Close()

	var contender *contend.Contender
	var watchers sync.WaitGroup
	contender, err = contend.New(c, *mutex, 0, func(ctx context.Context) {
		say(clock(), "acquired", client.Token(ctx))
		watchers.Go(func() { watch(ctx, contender, *check) })
	}, func() { say(clock(), "released") }, client.WithID(*id), client.WithTTL(*ttl), client.WithTransition(*transition))
	if err != nil {
		return err
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	if err := contender.Start(); err != nil {
		return err
	}
	<-stop.Done()
	err = contender.Stop(context.Background())
	watchers.Wait()
	return err
}

// watch checks the ownership repeatedly until it has ended.
func watch(ctx context.Context, contender *contend.Contender, every time.Duration) {
	token := client.Token(ctx)
	for {
		at := clock()
		if ctx.Err() != nil {
			say(at, "ended", token)
			return
		}
		say(at, "owned", token)
		at = clock()
		if contender.IsOwner() {
			say(at, "owner")
		}
		time.Sleep(every)
	}
}

// clock reads a clock that all processes of the machine share.
func clock() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return now.Nano()
}

// say writes a line with one system call, so a kill does not lose a part of the line.
func say(at int64, words ...any) {
	os.Stdout.WriteString(fmt.Sprintln(append([]any{at}, words...)...))
}
