package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A demoted primary still answers reads on its old connections. So each script that reads also
// makes a write, which a demoted primary refuses. The write changes nothing: see lua/writable.lua.
// These scripts serve the checks at the start, Scan, and the probes of pub/sub connections. Their
// only key is that of the write check. In scanLua, the write comes last and is not replicated: see
// lua/reconcile_fast.lua.
var (
	writableLua   = lua("writable")
	writeCheckLua = writableLua + `requireWritable(KEYS[1]) return 1`
	// scanLua returns the next cursor and a page of keys.
	// ARGV  1 cursor  2 count  3 '1' = only the locks of mutexes that have a queue too
	scanLua = writableLua + `local page = redis.call('SCAN', ARGV[1], 'MATCH', 'simba:{*', 'COUNT', ARGV[2])
		local list = { page[1] }
		for _, key in ipairs(page[2]) do
			if ARGV[3] ~= '1' or redis.call('EXISTS', key .. ':contender') == 1 then list[#list + 1] = key end
		end
		redis.set_repl(redis.REPL_NONE) requireWritable(KEYS[1]) return list`
	// ARGV  1 channel
	subscriberCountLua = writableLua + `requireWritable(KEYS[1]) return redis.call('PUBLISH', ARGV[1], '')`
)

// refusesWrites reports whether an error says that a node takes no writes at this moment. Before
// Redis 7 the code is inside the text of a script's error.
func refusesWrites(err error) bool {
	codes := []string{"READONLY ", "MASTERDOWN ", "LOADING ", "NOREPLICAS ", "MISCONF "}
	return err != nil && slices.ContainsFunc(codes, func(code string) bool { return strings.Contains(err.Error(), code) })
}

// dropIfWritesRefused drops a node's connections if the error of a request says that the node takes
// no writes. It keeps connections that were opened after the request was sent, since the address may
// lead to another node by now. It also drops connections to Sentinels, to which go-redis connects
// again.
func (u *upstream) dropIfWritesRefused(node *redis.Client, sent time.Time, err error) {
	if !refusesWrites(err) {
		return
	}
	addr := "" // all connections: without a cluster there is only one primary
	if u.cluster != nil {
		addr = node.Options().Addr
	}
	u.connections.dropBefore(addr, sent)
}

// eval runs one of these scripts at a node.
func (u *upstream) eval(ctx context.Context, node *redis.Client, script string, args ...any) *redis.Cmd {
	key, err := u.writeCheckKey(ctx, node)
	if err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	sent := time.Now()
	cmd := node.Eval(ctx, script, []string{key}, args...)
	u.dropIfWritesRefused(node, sent, cmd.Err())
	return cmd
}

// writeCheckKey returns a key in one of the node's slots. The write check changes nothing there,
// even if the key exists.
func (u *upstream) writeCheckKey(ctx context.Context, node *redis.Client) (string, error) {
	for i := range 1 << 16 {
		key := "simba:{" + strconv.Itoa(i) + "}:proof"
		c, err := u.clientFor(ctx, key)
		if err != nil {
			return "", err
		}
		if c == node {
			return key, nil
		}
	}
	return "", errors.New("redis: the node no longer has any slot of the cluster")
}
