package commands

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultSlowlogThreshold = 10000 // microseconds
	defaultSlowlogLimit     = 128   // entries
	maxSlowlogLimit         = 10000

	// The limits of an entry, as in Redis.
	slowlogArgs     = 32
	slowlogArgBytes = 128
)

// slowlog keeps the latest slow commands. The time of a command excludes blocked time and the wait
// for the disk.
type slowlog struct {
	threshold atomic.Int64 // microseconds; negative = off
	limit     atomic.Int64 // entries

	mu      sync.Mutex // protects the rest
	entries []slowCall // from old to new
	nextID  int64
}

type slowCall struct {
	id     int64
	at     time.Time
	took   time.Duration
	args   []string
	client string // address
	name   string
}

// ended adds a command that has just run, if the command was slow.
func (l *slowlog) ended(c *call) {
	threshold := l.threshold.Load()
	if threshold < 0 || c.took.Microseconds() < threshold || c.entry.has(secret|skipSlowlog) {
		return
	}
	call := slowCall{at: time.Now(), took: c.took, args: slowlogQuote(c.args), client: c.conn.RemoteAddr(), name: c.conn.Name()}
	l.mu.Lock()
	defer l.mu.Unlock()
	call.id = l.nextID
	l.nextID++
	l.entries = append(l.entries, call)
	l.trim()
}

func (l *slowlog) trim() {
	if over := len(l.entries) - int(l.limit.Load()); over > 0 {
		l.entries = slices.Delete(l.entries, 0, over)
	}
}

func slowlogQuote(args [][]byte) []string {
	kept := make([]string, 0, min(len(args), slowlogArgs))
	for i, a := range args {
		if i == slowlogArgs-1 && len(args) > slowlogArgs {
			return append(kept, fmt.Sprintf("... (%d more arguments)", len(args)-i))
		}
		kept = append(kept, string(cutArgument(a, slowlogArgBytes)))
	}
	return kept
}

// cutArgument cuts an argument that is longer than limit bytes, and appends the number of omitted
// bytes.
func cutArgument(a []byte, limit int) []byte {
	if len(a) <= limit {
		return a
	}
	return fmt.Appendf(nil, "%s... (%d more bytes)", a[:limit], len(a)-limit)
}

// newest returns the last n entries, the newest first; n < 0 = all.
func (l *slowlog) newest(n int64) []slowCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim()
	if n < 0 || n > int64(len(l.entries)) {
		n = int64(len(l.entries))
	}
	calls := slices.Clone(l.entries[len(l.entries)-int(n):])
	slices.Reverse(calls)
	return calls
}

func (l *slowlog) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trim()
	return len(l.entries)
}

func (l *slowlog) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = nil
}
