package commands

import "net"

// MasterName is the name of the cluster for clients of Redis Sentinel.
const MasterName = "simba"

// SentinelView is what a Sentinel knows of its cluster.
type SentinelView struct {
	Leader        Instance   // the last known leader; zero = none was known yet
	Flags, Status string     // of the leader, in Redis' words for SENTINEL and for INFO
	Replicas      []Instance // the members that do not lead
}

// Instance is where clients reach a member.
type Instance struct{ Host, Port string }

// sentinelServes are the commands that a Sentinel serves.
var sentinelServes = []string{"auth", "client", "command", "hello", "info", "ping", "psubscribe", "punsubscribe", "quit",
	"reset", "role", "sentinel", "subscribe", "unsubscribe"}

var sentinelCommands = []command{
	{
		name: "sentinel", arity: -2, since: "2.8.4",
		summary: "A container for the commands of Redis Sentinel",
		subs: []command{
			{name: "get-master-addr-by-name", arity: 3, flags: loading | stale, since: "2.8.4", run: (*client).sentinel, summary: "Returns the host and the port of the leader", args: "master-name"},
			{name: "master", arity: 3, flags: loading | stale, since: "2.8.4", run: (*client).sentinel, summary: "Returns the state of the leader", args: "master-name"},
			{name: "masters", arity: 2, flags: loading | stale, since: "2.8.4", run: (*client).sentinel, summary: "Returns a list with the state of the leader"},
			{name: "replicas", arity: 3, flags: loading | stale, since: "5.0.0", run: (*client).sentinel, summary: "Returns the members that do not lead", args: "master-name"},
			{name: "sentinels", arity: 3, flags: loading | stale, since: "2.8.4", run: (*client).sentinel, summary: "Returns an empty list, since a member does not know where the others listen", args: "master-name"},
			{name: "slaves", arity: 3, flags: loading | stale, since: "2.8.0", run: (*client).sentinel, summary: "The old name of REPLICAS", args: "master-name"},
		},
	},
}

// sentinel replies as Redis does, also to another name than MasterName.
func (c *client) sentinel(args [][]byte) error {
	if c.x.cfg.Sentinel == nil {
		return replyError("ERR SENTINEL is served at the address of --cluster-sentinel-addr only")
	}
	v, verb := c.x.cfg.Sentinel(), c.call.entry.name
	switch known := v.Leader.Host != "" && (len(args) == 2 || string(args[2]) == MasterName); {
	case known && verb == "get-master-addr-by-name":
		writeStrings(c.w, []string{v.Leader.Host, v.Leader.Port})
	case known && verb == "master":
		c.writeMaster(v)
	case known && verb == "masters":
		c.w.Array(1)
		c.writeMaster(v)
	case known && verb != "sentinels":
		c.w.Array(len(v.Replicas))
		for _, i := range v.Replicas {
			c.w.MapOf("name", net.JoinHostPort(i.Host, i.Port), "ip", i.Host, "port", i.Port, "flags", "slave")
		}
	case known, verb == "masters":
		c.w.Array(0)
	case verb != "get-master-addr-by-name":
		return replyError("ERR No such master with that name")
	default:
		c.nullArray()
	}
	return nil
}

// writeMaster writes those fields of Redis that mean something here.
func (c *client) writeMaster(v *SentinelView) {
	c.w.MapOf("name", MasterName, "ip", v.Leader.Host, "port", v.Leader.Port, "flags", v.Flags,
		"num-slaves", decimal(int64(len(v.Replicas))), "num-other-sentinels", "0")
}
