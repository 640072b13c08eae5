package redis

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// nodeBits is how many of the lowest bits of a cursor hold the index of the master.
const nodeBits = 8

// Scan implements simba.Backend: it runs SCAN at one master after another. If a cluster's masters
// change meanwhile, it may miss some mutexes.
func (b *Backend) Scan(ctx context.Context, r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
	if b.tasks.ctx.Err() != nil {
		return simba.ScanPage{}, 0, simba.ErrStopped
	}
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	page, err := b.scan(ctx, r)
	if err != nil {
		return simba.ScanPage{}, 0, b.requestError(err)
	}
	return page, 0, nil
}

func (b *Backend) scan(ctx context.Context, r simba.ScanRequest) (page simba.ScanPage, err error) {
	masters, err := b.up.masters(ctx)
	if err != nil {
		return page, err
	}
	at := int(r.Cursor & (1<<nodeBits - 1))
	if at >= len(masters) {
		return page, nil
	}
	if r.Count == 0 {
		r.Count = 10
	}
	reply, err := b.up.eval(ctx, masters[at], scanLua, r.Cursor>>nodeBits, "simba:{*", r.Count)
	if err != nil {
		return page, err
	}
	keys, cursor, err := parseScan(reply)
	if err != nil {
		return page, err
	}
	switch {
	case cursor != 0:
		page.Cursor = cursor<<nodeBits | uint64(at)
	case at+1 < len(masters):
		page.Cursor = uint64(at + 1)
	}
	page.Mutexes, err = b.up.pick(ctx, masters[at], keys, r)
	return page, err
}

func parseScan(reply any) (keys []string, cursor uint64, err error) {
	list, _ := reply.([]any)
	if len(list) != 2 {
		return nil, 0, errReply
	}
	text, _ := list[0].(string)
	if cursor, err = strconv.ParseUint(text, 10, 64); err != nil {
		return nil, 0, errReply
	}
	found, _ := list[1].([]any)
	for _, k := range found {
		if key, ok := k.(string); ok {
			keys = append(keys, key)
		}
	}
	return keys, cursor, nil
}

// pick returns the mutexes of these keys, each once, without those that the request does not ask
// for.
func (u *upstream) pick(ctx context.Context, node *redis.Client, keys []string, r simba.ScanRequest) (names []string, err error) {
	seen := make(map[string]bool)
	pipe := node.Pipeline()
	var checks []*redis.Cmd
	for _, key := range keys {
		lock, queued := strings.CutSuffix(key, ":contender")
		mutex, ok := simba.ParseMutexChannel(lock)
		switch {
		case !ok || seen[mutex]:
			continue
		case r.Held && queued && !r.Contended, r.Contended && !queued && !r.Held:
			continue // the other key of the mutex decides; SCAN lists it too if it exists
		case r.Match != nil && !r.Match(mutex):
			continue
		}
		seen[mutex] = true
		names = append(names, mutex)
		if r.Held && r.Contended {
			checks = append(checks, pipe.Eval(ctx, bothLua, []string{lock, lock + ":contender"}))
		}
	}
	if len(checks) == 0 {
		return names, nil
	}
	sent := time.Now()
	if _, err := pipe.Exec(ctx); err != nil {
		u.closeIfWritesRefused(node, sent, err)
		return nil, err
	}
	both := names[:0]
	for i, name := range names {
		if checks[i].Val() == int64(2) {
			both = append(both, name)
		}
	}
	return both, nil
}
