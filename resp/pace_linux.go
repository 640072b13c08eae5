package resp

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// bigRead is what is read of a client at once, at least, that counts. Reads of less cost more to ask for than to copy.
	bigRead = 4 << 10
	// freeBytes of big reads at once, and freePerSecond, are everybody's own. Only what a client sends beyond has to keep the pace.
	freeBytes     = 64 << 10
	freePerSecond = 1 << 20
	// ratePerProcessor is how many bytes a second are read beyond that, of all clients together: several times what the fastest pipelines
	// of commands that do something bring. What comes faster is long names, refused mostly, and to copy them takes the kernel's time, on both sides.
	ratePerProcessor int64 = 128 << 20
	// mostAhead is how far they may be ahead of that, but for one read.
	mostAhead = time.Millisecond
)

// bucket leaks. Its zero value is an empty one.
type bucket struct{ emptied time.Time }

// pour adds n bytes, of which perSecond leak.
func (b *bucket) pour(n int, perSecond int64, now time.Time) {
	if b.emptied.Before(now) {
		b.emptied = now
	}
	b.emptied = b.emptied.Add(time.Duration(int64(n) * int64(time.Second) / perSecond))
}

// left is how long it takes the bucket to be empty, not above 0 if it is.
func (b *bucket) left(now time.Time) time.Duration { return b.emptied.Sub(now) }

// allowance is what a client may send without keeping the pace. Its zero value is a whole one.
type allowance struct{ bucket }

// covers takes n bytes off the allowance, unless they are more than are left.
func (a *allowance) covers(n int, now time.Time) bool {
	b := a.bucket
	b.pour(n, freePerSecond, now)
	if b.left(now) > freeBytes*time.Second/freePerSecond {
		return false
	}
	a.bucket = b
	return true
}

// pace is how fast those are read who send much, all together. Each pays for what was read of it, in the order in which
// they came, before more is. Any goroutine may use it.
type pace struct {
	perSecond int64

	mu    sync.Mutex
	paid  bucket
	line  []debt
	timer *time.Timer // for the line; nil = nobody ever stood there
}

// debt is what was read of a sock, which is held until it is paid.
type debt struct {
	of    *sock
	bytes int
}

func newPace() *pace { return &pace{perSecond: ratePerProcessor * int64(runtime.GOMAXPROCS(0))} }

// pay has s held until its turn comes, if it does not at once.
func (p *pace) pay(s *sock, n int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.line) == 0 && p.paid.left(now) <= mostAhead {
		p.paid.pour(n, p.perSecond, now)
		return
	}
	s.held.Store(true)
	p.line = append(p.line, debt{s, n})
	switch {
	case len(p.line) > 1:
	case p.timer == nil:
		p.timer = time.AfterFunc(p.paid.left(now), p.goOn)
	default:
		p.timer.Reset(p.paid.left(now))
	}
}

// goOn lets those go whose turn has come.
func (p *pace) goOn() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, n := time.Now(), 0
	for ; n < len(p.line) && p.paid.left(now) <= mostAhead; n++ {
		d := p.line[n]
		p.paid.pour(d.bytes, p.perSecond, now)
		d.of.held.Store(false)
		d.of.task.signal()
	}
	if p.line = slices.Delete(p.line, 0, n); len(p.line) > 0 {
		p.timer.Reset(p.paid.left(now))
	}
}
