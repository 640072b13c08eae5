// Command prometheus repeatedly works under a lock, and serves metrics of its locks.
//
// Start a server with `make run`, and this program in two other terminals. The second program needs
// `--http-addr 127.0.0.1:9102`. Then read http://127.0.0.1:9101/metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

var (
	addr     = flag.String("addr", "127.0.0.1:7379", "the server's `host:port`")
	mutex    = flag.String("mutex", "report", "the mutex to lock")
	work     = flag.Duration("work", time.Second, "how long the work takes")
	httpAddr = flag.String("http-addr", "127.0.0.1:9101", "where /metrics is served")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	reg := prometheus.NewRegistry()
	ln, err := net.Listen("tcp", *httpAddr)
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("metrics at http://%s/metrics", ln.Addr())
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	web := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { _ = web.Close() })
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true}), reg)
	}()
	if err := web.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
	if err := <-done; err != nil {
		log.Fatal(err)
	}
}

// run works until ctx ends, and closes rdb.
func run(ctx context.Context, rdb *redis.Client, reg prometheus.Registerer) error {
	defer rdb.Close()
	c, err := client.New(rdb, client.Options{Hook: hook(reg)})
	if err != nil {
		return err
	}
	defer c.Close()
	for ctx.Err() == nil {
		err := c.Do(ctx, *mutex, func(ctx context.Context) error {
			select {
			case <-time.After(*work):
			case <-ctx.Done():
			}
			return context.Cause(ctx)
		})
		if err != nil && ctx.Err() == nil {
			log.Print(err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
	return nil
}
