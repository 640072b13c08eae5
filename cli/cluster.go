package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// ClusterCommands returns the client commands of simba-resp cluster. Each prints the members at its
// end.
func ClusterCommands() []*cobra.Command {
	return []*cobra.Command{
		membersCommand("status", "Show the members of a cluster", arguments(0, 0, "")),
		membersCommand("remove NAME", "Remove a member that does not lead, and show the rest", arguments(1, 1, "the NAME of a member")),
		membersCommand("transfer [NAME]", "Make another member the leader, and show the members", arguments(0, 1, "")),
	}
}

func membersCommand(use, short string, args cobra.PositionalArgs) *cobra.Command {
	return clientCommand(use, short, args, func(cmd *cobra.Command, c *redis.Client, args []string) error {
		s, err := manageCluster(cmd.Context(), c, cmd.Name(), args)
		switch {
		case err != nil:
			return Explain(c.Options(), err)
		case asJSON(cmd):
			return printJSON(cmd.OutOrStdout(), s)
		}
		return printCluster(cmd.OutOrStdout(), s)
	})
}

// leaderTimeout bounds how long a change waits for the reply of a leader.
const leaderTimeout = 10 * time.Second

// manageCluster sends a subcommand of SIMBA.CLUSTER. It returns the reply of STATUS afterwards, in
// which members is a []record.
func manageCluster(ctx context.Context, c *redis.Client, verb string, args []string) (record, error) {
	send := []any{"SIMBA.CLUSTER", verb}
	for _, a := range args {
		send = append(send, a)
	}
	v, err := reply(c.Do(ctx, send...))
	// The old leader ends the connection, perhaps before its reply. The next one needs a moment.
	again := verb == "remove" && err == nil || verb == "transfer" && !errors.As(err, new(redis.Error))
	for end := time.Now().Add(leaderTimeout); again && time.Now().Before(end); {
		if v, err = reply(c.Do(ctx, "SIMBA.CLUSTER", "STATUS")); err == nil || RefusesLogin(err) {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err != nil {
		return nil, err
	}
	r, err := toRecord(v)
	if err == nil {
		r["members"], err = records(r["members"], nil)
	}
	return r, err
}

func printCluster(out io.Writer, s record) error {
	fmt.Fprintf(out, "cluster %s, term %d, committed record %d\n", Printable(s.text("id")), s.number("term"), s.number("committed"))
	t := newTable(out, "MEMBER", "ADDRESS", "STATE", "LEADS", "REACHED", "LAG")
	for _, m := range s["members"].([]record) {
		leads := strconv.FormatBool(m.text("name") == s.text("leader"))
		t.row(m.text("name"), m.text("addr"), m.text("state"), leads, strconv.FormatBool(m.number("reached") == 1), number(m.number("lag")))
	}
	return t.flush()
}
