package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A node that is no primary any more goes on answering reads on the connections that it
// has. So each read is made in one script with a write that changes nothing, which such a
// node refuses: steps.lua does so for what concerns one mutex, and these for the rest.
// See lua/writable.lua for that write, and look_fast.lua for why it comes last, and is not replicated.
var (
	writeCheckLua = writableLua + `prove(KEYS[1]) return 1`
	// ARGV  1 cursor  2 pattern  3 count
	scanLua = writableLua + `local page = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
		redis.set_repl(redis.REPL_NONE) prove(KEYS[1]) return page`
	// KEYS  1 lock  2 queue
	bothLua = writableLua + `local n = redis.call('EXISTS', KEYS[1], KEYS[2])
		redis.set_repl(redis.REPL_NONE) prove(KEYS[2]) return n`
	// ARGV  1 channel
	subscriberCountLua = writableLua + `prove(KEYS[1]) return redis.call('PUBLISH', ARGV[1], '')`
)

// unfit reports whether an error says that a node takes no writes at this moment. Before
// Redis 7 the words are inside the text of a script's error.
func refusesWrites(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, word := range []string{"READONLY ", "MASTERDOWN ", "LOADING ", "NOREPLICAS ", "MISCONF "} {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// judge closes the connections of a node that were opened before a request was sent, if the
// error of that request says that the node takes no writes. Their address may lead to
// another node by now. Behind Sentinel that closes the connections to the Sentinels too:
// go-redis dials those by the same Dialer, and makes new ones.
func (u *upstream) judge(node *redis.Client, sent time.Time, err error) {
	if !refusesWrites(err) {
		return
	}
	addr := "" // all: without a cluster there is one primary only
	if u.cluster != nil {
		addr = node.Options().Addr
	}
	u.connections.closeBefore(addr, sent)
}

// eval runs one of the scripts above that has no key but the proof's.
func (u *upstream) eval(ctx context.Context, node *redis.Client, script string, args ...any) (any, error) {
	key, err := u.writeCheckKey(ctx, node)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	reply, err := node.Eval(ctx, script, []string{key}, args...).Result()
	u.judge(node, sent, err)
	return reply, err
}

var errNoSlot = errors.New("redis: the node has no slots of the cluster any more")

// proofKey is a key in one of the node's slots. Nothing happens to it, should it exist.
func (u *upstream) writeCheckKey(ctx context.Context, node *redis.Client) (string, error) {
	for i := range 1 << 16 {
		key := "simba:{" + strconv.Itoa(i) + "}:proof"
		c, err := u.of(ctx, key)
		if err != nil {
			return "", err
		}
		if c == node {
			return key, nil
		}
	}
	return "", errNoSlot
}
