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
// These scripts serve the checks at the start, Scan, and the probes of pub/sub connections. In
// scanLua and bothLua, the write comes last and is not replicated: see lua/reconcile_fast.lua.
var (
	writableLua   = lua("writable")
	writeCheckLua = writableLua + `requireWritable(KEYS[1]) return 1`
	// ARGV  1 cursor  2 pattern  3 count
	scanLua = writableLua + `local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
		redis.set_repl(redis.REPL_NONE) requireWritable(KEYS[1]) return page`
	// KEYS  1 lock  2 queue
	bothLua = writableLua + `local n = redis.call('EXISTS', KEYS[1], KEYS[2])
		redis.set_repl(redis.REPL_NONE) requireWritable(KEYS[2]) return n`
	// ARGV  1 channel
	subscriberCountLua = writableLua + `requireWritable(KEYS[1]) return redis.call('PUBLISH', ARGV[1], '')`
)

// refusesWrites reports whether an error says that a node takes no writes at this moment. Before
// Redis 7 the code is inside the text of a script's error.
func refusesWrites(err error) bool {
	codes := []string{"READONLY ", "MASTERDOWN ", "LOADING ", "NOREPLICAS ", "MISCONF "}
	return err != nil && slices.ContainsFunc(codes, func(code string) bool { return strings.Contains(err.Error(), code) })
}

// closeIfWritesRefused closes a node's connections if the error of a request says that the node
// takes no writes. It keeps connections that were opened after the request was sent, since the
// address may lead to another node by now. It also closes connections to Sentinels, to which
// go-redis connects again.
func (u *upstream) closeIfWritesRefused(node *redis.Client, sent time.Time, err error) {
	if !refusesWrites(err) {
		return
	}
	addr := "" // all connections: without a cluster there is only one primary
	if u.cluster != nil {
		addr = node.Options().Addr
	}
	u.connections.closeBefore(addr, sent)
}

// eval runs subscriberCountLua. The script's only key is that of the write check.
func (u *upstream) eval(ctx context.Context, node *redis.Client, script string, args ...any) (any, error) {
	key, err := u.writeCheckKey(ctx, node)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	reply, err := node.Eval(ctx, script, []string{key}, args...).Result()
	u.closeIfWritesRefused(node, sent, err)
	return reply, err
}

var errNoSlot = errors.New("redis: the node no longer has any slot of the cluster")

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
	return "", errNoSlot
}
