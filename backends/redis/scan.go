package redis

import (
	"cmp"
	"context"
	"strconv"
	"strings"

	"github.com/simba-resp/simba-resp"
)

// nodeBits is how many of the lowest bits of a cursor hold the index of the master.
const nodeBits = 8

// Scan implements simba.Backend: it runs SCAN at one master after another. If a cluster's masters
// change meanwhile, it may miss some mutexes.
func (b *Backend) Scan(ctx context.Context, r simba.ScanRequest) (simba.ScanPage, simba.Seq, error) {
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
	both := r.Held && r.Contended
	list, err := b.up.eval(ctx, masters[at], scanLua, r.Cursor>>nodeBits, cmp.Or(r.Count, 10), both).StringSlice()
	if err != nil {
		return page, err
	}
	cursor, err := strconv.ParseUint(list[0], 10, 64)
	if err != nil {
		return page, err
	}
	switch {
	case cursor != 0:
		page.Cursor = cursor<<nodeBits | uint64(at)
	case at+1 < len(masters):
		page.Cursor = uint64(at + 1)
	}
	page.Mutexes = pick(list[1:], r)
	return page, nil
}

// pick returns the mutexes of these keys, each once, without those that the request does not ask
// for.
func pick(keys []string, r simba.ScanRequest) (names []string) {
	seen := make(map[string]bool)
	for _, key := range keys {
		lock, queued := strings.CutSuffix(key, ":contender")
		mutex, ok := simba.ParseMutexChannel(lock)
		switch {
		case !ok || seen[mutex]:
		case r.Held && queued, r.Contended && !queued && !r.Held:
			// The other key of the mutex decides. SCAN lists it too if it exists.
		case r.Match == nil || r.Match(mutex):
			seen[mutex] = true
			names = append(names, mutex)
		}
	}
	return names
}
