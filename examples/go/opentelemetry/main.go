// Command opentelemetry works under a lock, and prints the spans of its wait, tenure and work.
//
// Start a server with `make run`, and this program with `--work 10s` in two other terminals. The
// span "simba acquire" of the second program shows how long the program has waited.
package main

import (
	"context"
	"flag"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/simba-resp/simba-resp/client"
)

var (
	addr  = flag.String("addr", "127.0.0.1:7379", "the server's `host:port`")
	mutex = flag.String("mutex", "report", "the mutex to lock")
	work  = flag.Duration("work", time.Second, "how long the work takes")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exporter, err := stdouttrace.New(stdouttrace.WithPrettyPrint())
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: *addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	if err := run(ctx, rdb, exporter); err != nil {
		log.Fatal(err)
	}
}

// run does one piece of work under the lock, in a span "report", and exports the spans.
func run(ctx context.Context, rdb *redis.Client, exporter sdk.SpanExporter) (err error) {
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter))
	defer func() { _ = provider.Shutdown(context.WithoutCancel(ctx)) }()
	tracer := provider.Tracer("github.com/simba-resp/simba-resp/examples/go/opentelemetry")
	c, err := client.New(rdb, client.Options{Hook: hook(tracer)})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, span := tracer.Start(ctx, "report")
	defer span.End()
	return c.Do(ctx, *mutex, func(ctx context.Context) error {
		select {
		case <-time.After(*work):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}
