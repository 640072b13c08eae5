package cli

import (
	"cmp"
	"context"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func historyCommand() *cobra.Command {
	var most *int
	cmd := mutexCommand("history NAME", "List the last events of a mutex, from old to new",
		func(cmd *cobra.Command, c *redis.Client, mutex string) error {
			events, err := history(cmd.Context(), c, mutex, *most)
			if err != nil {
				return err
			}
			if asJSON(cmd) {
				return printJSONLines(cmd.OutOrStdout(), events)
			}
			t := newTable(cmd.OutOrStdout(), "TIME", "EVENT", "TOKEN", "CONTENDER", "REASON")
			for _, e := range events {
				t.row(clock(e.At), e.Event, token(e.Token), e.Owner, cmp.Or(e.Reason, "-"))
			}
			return t.flush()
		})
	cmd.Long = cmd.Short + `.

A server keeps the last events that it made or saw, of all mutexes together; see the setting history.
The list also has the grant of the present owner, however old it is.`
	most = addCount(cmd, 10)
	return cmd
}

// history asks for the last events of a mutex.
func history(ctx context.Context, c *redis.Client, mutex string, count int) ([]Event, error) {
	list, err := records(ask(ctx, c, "SIMBA.HISTORY", mutex, "COUNT", count))
	events := make([]Event, len(list))
	for i, r := range list {
		events[i] = Event{r.number("seq"), r.number("at"), r.text("event"), mutex, r.text("owner"), r.number("token"), r.text("reason")}
	}
	return events, err
}

// token formats a fencing token. Events of the queue have none: token returns "-".
func token(n int64) string {
	if n == 0 {
		return "-"
	}
	return number(n)
}
