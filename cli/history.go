package cli

import (
	"cmp"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

func historyCommand() *cobra.Command {
	var asJSON *bool
	var most *int
	cmd := mutexCommand("history NAME", "List the last events of a mutex, from old to new",
		func(cmd *cobra.Command, c *redis.Client, mutex string) error {
			v, err := reply(c.Do(cmd.Context(), "SIMBA.HISTORY", mutex, "COUNT", *most))
			if err != nil {
				return Explain(c.Options(), err)
			}
			events, err := toEvents(mutex, v)
			if err != nil {
				return err
			}
			if *asJSON {
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
	asJSON = addJSON(cmd)
	return cmd
}

// token formats a fencing token. Events of the queue have none: token returns "-".
func token(n int64) string {
	if n == 0 {
		return "-"
	}
	return number(n)
}
