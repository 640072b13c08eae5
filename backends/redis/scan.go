package redis

import (
	"context"
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
	if b.Stopped() {
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
	key, err := b.up.writeCheckKey(ctx, masters[at])
	if err != nil {
		return page, err
	}
	sent := time.Now()
	cmd := redis.NewScanCmd(ctx, masters[at].Process, "eval", scanLua, 1, key, r.Cursor>>nodeBits, "simba:{*", r.Count)
	_ = masters[at].Process(ctx, cmd) // cmd has the error
	keys, cursor, err := cmd.Result()
	b.up.closeIfWritesRefused(masters[at], sent, err)
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
