package commands

import (
	"bytes"
	"context"
	"time"
)

const clusterFlags = adminHidden | noscript | noMulti

var simbaClusterRow = command{
	name: "simba.cluster", arity: -2, since: "0.1.0",
	summary: "A container for the commands of a cluster",
	subs: []command{
		{name: "status", arity: 2, flags: clusterFlags, since: "0.1.0", run: (*client).manageCluster, summary: "Returns the state of the cluster and of its members"},
		{name: "remove", arity: 3, flags: clusterFlags, since: "0.1.0", run: (*client).manageCluster, summary: "Removes a member that does not lead", args: "name"},
		{name: "transfer", arity: -2, flags: clusterFlags, since: "0.1.0", run: (*client).manageCluster, summary: "Makes another member the leader, and closes all connections", args: "[name]"},
	},
}

// Cluster is the cluster that the server is a member of.
type Cluster interface {
	// State returns pairs for resp.Writer.Pairs: those of the cluster, and the name, addr, state,
	// reached and lag of each member.
	State() (cluster []any, members [][]any)
	Remove(ctx context.Context, name string) error
	// Transfer makes a member the leader, "" = any.
	Transfer(ctx context.Context, to string) error
}

// changeClusterTimeout bounds how long REMOVE and TRANSFER wait.
const changeClusterTimeout = 2 * time.Second

// manageCluster replies to STATUS when it is sure that this member leads. The connection may end before
// the reply to TRANSFER.
func (c *client) manageCluster(args [][]byte) (err error) {
	ctx, cancel := context.WithTimeout(c.conn.Context(), changeClusterTimeout)
	defer cancel()
	switch x, verb := c.x.cfg.Cluster, c.call.entry.name; {
	case x == nil:
		return replyErrorf("ERR '%s' is served with --cluster only: this is a single server", c.call.entry.full)
	case len(args) > 3:
		return tryHelp(c.call.entry, args)
	case verb == "status":
		c.conn.ReplyAfter(0)
		cluster, members := x.State()
		c.w.Map(len(cluster)/2 + 1)
		c.w.Pairs(cluster...)
		c.w.BulkString("members")
		c.w.Array(len(members))
		for _, m := range members {
			c.w.MapOf(m...)
		}
		return nil
	case verb == "remove":
		err = x.Remove(ctx, string(shorten(args[2])))
	default:
		err = x.Transfer(ctx, string(shorten(bytes.Join(args[2:], nil))))
	}
	if err != nil {
		return replyErrorf("ERR %v", err)
	}
	c.w.Simple("OK")
	return nil
}
