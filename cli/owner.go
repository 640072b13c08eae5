package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func ownerCommand() *cobra.Command {
	cmd := mutexCommand("owner NAME", "Show who owns a mutex, and until when",
		func(cmd *cobra.Command, c *redis.Client, mutex string) error {
			t, err := owner(cmd.Context(), c, mutex)
			if err != nil {
				return err
			}
			switch {
			case asJSON(cmd):
				err = printJSON(cmd.OutOrStdout(), t)
			case t.Held:
				err = printTenure(cmd.OutOrStdout(), t)
			}
			if err == nil && !t.Held {
				err = no("%s has no owner", Printable(t.Mutex))
			}
			return err
		})
	cmd.Long = cmd.Short + ".\n\nExit code 1: the mutex has no owner."
	return cmd
}

// owner asks for the tenure of a mutex.
func owner(ctx context.Context, c *redis.Client, mutex string) (Tenure, error) {
	v, err := ask(ctx, c, "SIMBA.OWNER", mutex)
	if err != nil {
		return Tenure{}, err
	}
	return toTenure(mutex, v)
}

func printTenure(out io.Writer, t Tenure) error {
	w := newTable(out)
	w.row("mutex", t.Mutex)
	w.row("owner", t.Owner)
	w.row("token", number(t.Token))
	if t.Since != nil {
		w.row("since", fmt.Sprintf("%s (%s)", clock(*t.Since), millis(max(t.Now-*t.Since, 0))))
	}
	w.row("renewed", fmt.Sprintf("%s ago", millis(t.Now-t.AcquiredAt)))
	w.row("ttl window", left(t.TTL))
	w.row("lease", left(t.Transition))
	if c := t.Connection; c != nil {
		w.row("connection", connectionText(c))
	}
	w.row("waiters", number(t.Waiters))
	return w.flush()
}

// noExpiry is shown for a lease that does not end by itself.
const noExpiry = "no expiry"

// left says when a window ends; nil = never.
func left(ms *int64) string {
	switch {
	case ms == nil:
		return noExpiry
	case *ms == 0:
		return "ended"
	}
	return "ends in " + millis(*ms)
}

func connectionText(c *Connection) string {
	text := fmt.Sprintf("%d from %s", c.ID, c.Addr)
	if c.Name != "" {
		text += ", name " + c.Name
	}
	return text
}
