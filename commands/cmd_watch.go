package commands

import (
	"errors"

	"github.com/simba-resp/simba-resp"
)

var watchCommands = []command{
	{
		name: "unwatch", arity: 1, flags: control | fast | allowBusy, categories: catTransaction,
		group: "transactions", since: "2.2.0", run: (*client).unwatch, keyed: unwatchKeyed,
		summary: "Forget about all watched keys",
	},
	{
		name: "watch", arity: -2, flags: control | fast | allowBusy | immediate, categories: catTransaction,
		keys:  keys{1, -1, 1, []string{"RO"}},
		group: "transactions", since: "2.2.0", run: (*client).watchKeys,
		summary: "Watch the given keys to determine execution of the MULTI/EXEC block",
		args:    "key [key ...]",
	},
}

// watches maps each watched key to the version that it had when WATCH named it.
type watches map[simba.Key]uint64

func isQueue(k simba.Key) bool { return k.Part == simba.KeyQueue }

// maxWatched is how many keys a connection may watch. The engine keeps a counter for each key.
const maxWatched = 1000

func (c *client) watchKeys(args [][]byte) error {
	space, err := c.keyspace()
	switch {
	case err != nil:
		return err
	case c.tx != nil:
		return replyError("ERR WATCH inside MULTI is not allowed")
	}
	var added []simba.Key
	for _, a := range args[1:] {
		k := parseKey(a)
		if _, ok := c.watched[k]; !ok {
			added = append(added, k)
		}
	}
	if len(c.watched)+len(added) > maxWatched {
		return replyErrorf("ERR too many watched keys: a connection may watch at most %d", maxWatched)
	}
	if c.watched == nil {
		c.watched = make(watches)
	}
	for _, k := range added {
		if _, ok := c.watched[k]; !ok { // the arguments may repeat a key
			c.watched[k] = space.Watch(k.Mutex, isQueue(k))
		}
	}
	c.conn.ReplyAfter(0) // Watch may have ended a lease that had expired
	c.w.Simple("OK")
	return nil
}

func (c *client) unwatch([][]byte) error {
	c.forgetWatch()
	c.w.Simple("OK")
	return nil
}

// unwatchKeyed is UNWATCH inside EXEC, which has already ended every WATCH.
func unwatchKeyed(t *keyTx, _ [][]byte) error {
	t.w.Simple("OK")
	return nil
}

func (c *client) forgetWatch() {
	c.unwatchAll(c.watched)
	c.watched = nil
}

func (c *client) unwatchAll(watched watches) {
	for k := range watched {
		c.x.keyspace.Unwatch(k.Mutex)
	}
}

// errWatchedChanged is returned when a watched key has changed. EXEC then replies with a null
// array.
var errWatchedChanged = errors.New("a watched key has changed")

// checkWatched returns errWatchedChanged if a watched key has changed. If a watched key changes
// after this check and before the commit, the transaction conflicts and runs again.
func (t *keyTx) checkWatched(watched watches) error {
	for k, version := range watched {
		if !t.Unchanged(k.Mutex, isQueue(k), version) {
			return errWatchedChanged
		}
	}
	return nil
}
