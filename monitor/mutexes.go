package monitor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// maxMutexes bounds the mutexes that have series, and so the size of a scrape.
const maxMutexes = 200

// scanCount is how many mutexes one call of Scan examines.
const scanCount = 10_000

// mutexes are the mutexes that have series.
type mutexes struct {
	list     []mutexReading // in no order
	complete bool           // no mutex was left out
}

type mutexReading struct {
	name    string
	held    bool
	waiters int
}

// readMutexes returns the mutexes with an owner or waiters whose names match one of the globs, at
// most maxMutexes. It leaves out a mutex whose name the store does not allow. After any other error
// it reads no more mutexes.
func readMutexes(ctx context.Context, b simba.Backend, globs []string) (found mutexes) {
	if len(globs) == 0 {
		return found
	}
	names, complete := matching(ctx, b, globs)
	var replyAfter simba.Seq
	for _, name := range names {
		m, seq, err := readMutex(ctx, b, name)
		if ctx.Err() != nil {
			return mutexes{}
		}
		replyAfter = max(replyAfter, seq)
		if err != nil {
			complete = false
			if errors.As(err, new(*simba.NameError)) {
				continue
			}
			break
		}
		if m.held || m.waiters > 0 {
			found.list = append(found.list, m)
		}
	}
	if err := b.Commit(replyAfter); err != nil { // nobody may see what is not durable
		return mutexes{}
	}
	found.complete = complete
	return found
}

// maxQueue is how many waiters of a free mutex readMutex counts at most. A mutex is free and has
// waiters only for moments.
const maxQueue = 10_000

func readMutex(ctx context.Context, b simba.Backend, name string) (mutexReading, simba.Seq, error) {
	t, replyAfter, err := b.Owner(ctx, name)
	if err != nil || !t.IsFree() {
		return mutexReading{name, true, t.Waiters}, replyAfter, err
	}
	queue, seq, err := b.Queue(ctx, name, maxQueue)
	return mutexReading{name, false, len(queue)}, max(replyAfter, seq), err
}

// matching returns up to maxMutexes names that match. complete is false if other names may match.
func matching(ctx context.Context, b simba.Backend, globs []string) (names []string, complete bool) {
	if !slices.ContainsFunc(globs, IsGlob) { // Scan is not needed
		return globs[:min(len(globs), maxMutexes)], len(globs) <= maxMutexes
	}
	known := make(map[string]bool)
	match := func(name string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool { return resp.Match(glob, name) })
	}
	for cursor := uint64(0); ; {
		page, _, err := b.Scan(ctx, simba.ScanRequest{Cursor: cursor, Count: scanCount, Match: match})
		if err != nil || ctx.Err() != nil {
			return names, false
		}
		for _, name := range page.Mutexes {
			switch {
			case known[name]:
			case len(names) == maxMutexes:
				return names, false
			default:
				known[name] = true
				names = append(names, name)
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return names, true
		}
	}
}

// IsGlob reports whether a pattern can match names other than itself.
func IsGlob(pattern string) bool { return strings.ContainsAny(pattern, `*?[\`) }
