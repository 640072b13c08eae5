package resp

import (
	"runtime"
	"sync"
	"time"
)

const (
	// much is what is read of a client at once, at least, that has to keep the pace: more than comes of who waits for its replies.
	much = 4 << 10
	// ratePerProcessor is how many bytes a second are read of such clients, all together: several times what the fastest pipelines of commands
	// that do something bring. What comes faster is long names, refused mostly, and to copy them takes the kernel's time, on both sides.
	ratePerProcessor = 128 << 20
	// mostAhead is how far clients may be ahead of that.
	mostAhead = time.Millisecond
)

// pace is how fast those are read that send much: a bucket that leaks. Any goroutine may use it.
type pace struct {
	perSecond int

	mu      sync.Mutex
	emptied time.Time
}

func newPace() *pace { return &pace{perSecond: ratePerProcessor * runtime.GOMAXPROCS(0)} }

// took is called when n bytes have been read.
func (p *pace) took(n int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.emptied.Before(now) {
		p.emptied = now
	}
	p.emptied = p.emptied.Add(time.Duration(n) * time.Second / time.Duration(p.perSecond))
}

// rest is how long it takes the bucket to be empty, if it is too full to read on before; else 0.
func (p *pace) rest(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ahead := p.emptied.Sub(now); ahead > mostAhead {
		return ahead
	}
	return 0
}
