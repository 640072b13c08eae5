package mysql

import (
	"context"
	"strings"

	"github.com/simba-resp/simba-resp"
)

// Subscribed implements simba.Backend. It returns nil only after it has read the row, so that this
// server announces every later change.
func (b *Backend) Subscribed(ctx context.Context, channel string, pattern bool) (simba.Seq, error) {
	if pattern {
		return 0, b.subscribedPattern(ctx, channel)
	}
	mutex, isMutex := simba.ParseMutexChannel(channel)
	if !isMutex {
		mutex, isMutex = simba.ParseEventChannel(channel)
	}
	ofContender, contender, isContender := simba.ParseContenderChannel(channel)
	if isContender {
		mutex = ofContender
	}
	if !isMutex && !isContender || b.checkNames(mutex, contender) != nil {
		if b.ctx.Err() != nil {
			return 0, simba.ErrStopped
		}
		return 0, nil // not a channel of a mutex
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	m := b.ref(mutex)
	defer b.unref(m)
	if isContender && !b.markReachable(m, contender) {
		return 0, nil
	}
	if isMutex {
		b.mu.Lock()
		m.subscribed = true
		b.mu.Unlock()
	}
	err = b.refreshAndHandOff(ctx, m)
	if err != nil {
		b.refreshSoon(m)
	}
	return 0, b.failAt(m, err)
}

// markReachable records that a polling waiter has subscribed. An earlier notice may have gone to a
// subscription that has ended, so the waiter may be notified again. markReachable returns false if
// the contender does not wait.
func (b *Backend) markReachable(m *mutexState, contender string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := m.index[contender]
	if e == nil {
		return false
	}
	e.notifiedAt = 0
	if m.reserved == e {
		m.reserved = nil
	}
	return true
}

// subscribedPattern watches the whole table if the pattern can match channels of mutexes.
func (b *Backend) subscribedPattern(ctx context.Context, pattern string) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if !mayMatchChannel(pattern) {
		return nil
	}
	b.mu.Lock()
	b.patterns[pattern] = struct{}{}
	b.mu.Unlock()
	return b.fail(b.announceTableChanges(ctx))
}

func mayMatchChannel(pattern string) bool {
	literal := pattern
	if i := strings.IndexAny(pattern, `*?[\`); i >= 0 {
		literal = pattern[:i]
	}
	for _, prefix := range []string{simba.MutexChannel(""), simba.EventChannel("")} {
		prefix = strings.TrimSuffix(prefix, "}")
		if strings.HasPrefix(prefix, literal) || strings.HasPrefix(literal, prefix) {
			return true
		}
	}
	return false
}
