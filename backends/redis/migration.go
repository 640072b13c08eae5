package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// While a slot of a cluster moves, its keys are spread over two nodes. Redis then refuses scripts
// of several keys by TRYAGAIN or ASK. Renewals go on by two scripts of one key each. They leave the
// record of the tenure as it is. Later steps.lua adopts the end of the lock.

// extendKeyLua moves the end of a key that has a value. It returns the value and the clock, or
// nothing if the value differs. If any value will do, the key may belong to another contender's
// lease, so its end is never brought forward.
// ARGV  1 value; empty = any  2 ms from now
const extendKeyLua = `local value, time = redis.call('GET', KEYS[1]), redis.call('TIME')
	if not value or ARGV[1] ~= '' and value ~= ARGV[1] then return false end
	local now = time[1] * 1000 + math.floor(time[2] / 1000)
	if ARGV[1] ~= '' or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
		redis.call('PEXPIREAT', KEYS[1], now + ARGV[2] .. '')
	end
	return { value, now }`

// slotMoves reports whether a script did not run because the slot of its keys moves.
func slotMoves(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK"))
}

// renewWhileSlotMoves renews the lease of the owner. args are those of the scripts acquire and
// guard. It returns nil if the contender is not the owner, or if a node does not reply.
func (b *Backend) renewWhileSlotMoves(ctx context.Context, mutex string, s *script, args []any) *reply {
	contender, ttl, transition := args[0].(string), args[1].(int64), args[2].(int64)
	token := ""
	if s == guardScript && args[3] != "0" {
		token = args[3].(string)
	}
	lock := simba.MutexChannel(mutex)
	// The token comes first. If only the lock lived on, a new tenure with another token would seem
	// to have begun.
	token, _, err := b.up.extendKey(ctx, lock+":token", token, ttl+transition)
	if err != nil {
		return nil
	}
	_, now, err := b.up.extendKey(ctx, lock, contender, ttl+transition)
	if err != nil {
		return nil
	}
	st := &reply{status: "renewed", owner: contender, acquired: now, ttlAt: now + ttl, ends: now + ttl + transition, now: now}
	if st.token, err = strconv.ParseUint(token, 10, 64); err != nil {
		return nil
	}
	st.due = st.ends
	return st
}

// extendKey runs extendKeyLua at the node that has the key. go-redis follows ASK. It may run the
// script again after a lost reply, which does no harm.
func (u *upstream) extendKey(ctx context.Context, key, value string, ms int64) (is string, now int64, err error) {
	list, err := u.cluster.Eval(ctx, extendKeyLua, []string{key}, value, ms).Slice()
	if err != nil {
		return "", 0, err
	}
	if len(list) != 2 {
		return "", 0, errReply
	}
	is, _ = list[0].(string)
	now, _ = list[1].(int64)
	return is, now, nil
}

// slotWarnings is the shortest time between two warnings of moving slots.
const slotWarnings = time.Minute

// warnOfMovingSlot logs that a mutex gets no new owner, and returns err with what to do about it.
func (b *Backend) warnOfMovingSlot(mutex string, err error) error {
	const advice = "if no reshard runs, an earlier one was interrupted: run redis-cli --cluster fix"
	now := time.Now().UnixNano()
	if last := b.slotWarned.Load(); now-last >= int64(slotWarnings) && b.slotWarned.CompareAndSwap(last, now) {
		b.Log.Warn("a slot of the redis cluster moves: its owners can renew, but its mutexes get no new owner; "+advice, "mutex", mutex)
	}
	return fmt.Errorf("%w; the slot of the mutex moves; %s", err, advice)
}
