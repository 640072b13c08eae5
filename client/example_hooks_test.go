package client_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/internal/testserver"
)

// Log a warning for each lock that took long to acquire, and for each lock that was lost.
func ExampleHooks() {
	log := slog.New(slog.NewTextHandler(os.Stdout, nil))
	c, done := testserver.ConnectWith(client.Options{Hooks: client.Hooks{
		Acquired: func(ctx context.Context, e client.HookEvent) {
			if e.Took > time.Minute {
				log.WarnContext(ctx, "slow lock", "mutex", e.Mutex, "waited", e.Took)
			}
		},
		Lost: func(ctx context.Context, e client.HookEvent) {
			log.WarnContext(ctx, "lock lost", "mutex", e.Mutex, "held", e.Took, "expired", e.Expired)
		},
		WorkDone: func(_ context.Context, e client.HookEvent) {
			fmt.Println("work on", e.Mutex, "done, with a token:", e.Token != 0, "error", e.Err)
		},
	}})
	defer done()
	err := c.Do(context.Background(), "report", func(context.Context) error { return nil })
	fmt.Println(err)
	// Output:
	// work on report done, with a token: true error <nil>
	// <nil>
}
