package monitor

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// A probe reads the owner of probeMutex, which need not exist.
	probeMutex = "simba-resp:health"
	// probeTimeout bounds a probe if the store does not bound it.
	probeTimeout = 5 * time.Second
	// probeWait is how long a request waits for a probe. Prometheus waits for 10 s by default.
	probeWait = 8 * time.Second
	// probeAge is how long later requests share the result of a probe, so that they cannot overload
	// the store.
	probeAge = time.Second
)

var errNoProbe = errors.New("no answer in time")

// prober checks whether the store answers. Requests share a probe that is running. It is safe for
// concurrent use.
type prober struct {
	backend simba.Backend
	life    context.Context // ends when close is called
	end     context.CancelFunc
	probes  sync.WaitGroup

	mu     sync.Mutex // guards the rest
	last   *probe
	closed bool
}

// probe is one request to the store.
type probe struct {
	done  chan struct{} // closed when err is set
	err   error
	ended time.Time
}

func newProber(b simba.Backend) *prober {
	p := &prober{backend: b}
	p.life, p.end = context.WithCancel(context.Background())
	return p
}

// check returns nil if the store answers, else an error that says why it does not.
func (p *prober) check(ctx context.Context) error {
	current := p.current()
	if current == nil {
		return simba.ErrStopped
	}
	select {
	case <-current.done:
		return current.err
	case <-ctx.Done():
		return errNoProbe
	}
}

// current returns the probe that runs, or a recent one, or a new one. It returns nil after close.
func (p *prober) current() *probe {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	if last := p.last; last != nil {
		select {
		case <-last.done:
			if time.Since(last.ended) < probeAge {
				return last
			}
		default:
			return last
		}
	}
	next := &probe{done: make(chan struct{})}
	p.last = next
	p.probes.Go(func() { p.run(next) })
	return next
}

// run reads the owner of a mutex, and waits until all changes so far are durable. So with the
// engine embedded, the disk must answer too. It passes Stats().Seq to Commit, because the Seq from
// Owner covers only the changes of few mutexes.
func (p *prober) run(current *probe) {
	defer close(current.done)
	ctx, cancel := context.WithTimeout(p.life, probeTimeout)
	defer cancel()
	_, seq, err := p.backend.Owner(ctx, probeMutex)
	if err == nil {
		err = p.backend.Commit(max(seq, p.backend.Stats().Seq))
	}
	current.err, current.ended = err, time.Now()
}

// close cancels the running probe and waits for its end.
func (p *prober) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.end()
	p.probes.Wait()
}
