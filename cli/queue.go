package cli

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func queueCommand() *cobra.Command {
	var most *int
	cmd := mutexCommand("queue NAME", "List the waiters of a mutex, in order",
		func(cmd *cobra.Command, c *redis.Client, mutex string) error {
			waiters, err := queue(cmd.Context(), c, mutex, *most)
			if err != nil {
				return err
			}
			if asJSON(cmd) {
				return printJSONLines(cmd.OutOrStdout(), waiters)
			}
			t := newTable(cmd.OutOrStdout(), "POSITION", "WAITING", "KIND", "CONTENDER")
			for _, w := range waiters {
				t.row(number(w.Position), millis(w.Waiting), w.Kind, w.Contender)
			}
			return t.flush()
		})
	cmd.Long = cmd.Short + `.

On the engines mysql and postgres these are the waiters of the server that replies. Other engines
have one queue for all servers.`
	most = addCount(cmd, mostWaiters)
	return cmd
}

// mostWaiters is the largest COUNT that the server accepts.
const mostWaiters = 10_000

func addCount(cmd *cobra.Command, initial int) *int {
	return cmd.Flags().Int("count", initial, fmt.Sprintf("list at most `N`, 1 to %d", mostWaiters))
}

// queue asks for the waiters of a mutex.
func queue(ctx context.Context, c *redis.Client, mutex string, count int) ([]Waiter, error) {
	list, err := records(ask(ctx, c, "SIMBA.QUEUE", mutex, "COUNT", count))
	waiters := make([]Waiter, len(list))
	for i, r := range list {
		waiters[i] = Waiter{r.text("contender"), r.number("position"), r.number("waiting"), r.text("kind")}
	}
	return waiters, err
}
