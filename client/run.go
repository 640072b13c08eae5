package client

import (
	"context"
	"fmt"
	"sync"
)

// run is one run of what can be started and stopped.
type run struct {
	stop func()        // tells it to end, and does not wait; may be called often
	quit chan struct{} // closed by stop
	gone chan struct{} // closed when nothing of it is left
	done chan struct{} // closed right after gone, or before it when that takes too long
	err  error         // may be read when done is closed

	finish func(error) // closes done; the first call counts
}

func newRun() *run {
	r := &run{quit: make(chan struct{}), done: make(chan struct{}), gone: make(chan struct{})}
	r.stop = sync.OnceFunc(func() { close(r.quit) })
	var once sync.Once
	r.finish = func(err error) {
		once.Do(func() {
			r.err = err
			close(r.done)
		})
	}
	return r
}

// runKey is the key of a value that the contexts of a run's callbacks have.
type runKey struct{ *run }

func (r *run) context(base context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(base), runKey{r}, true)
}

// quitting reports whether it is told to end.
func (r *run) quitting() bool {
	select {
	case <-r.quit:
		return true
	default:
		return false
	}
}

// over reports whether nothing of it is left. A nil run was never begun.
func (r *run) over() bool {
	if r == nil {
		return true
	}
	select {
	case <-r.gone:
		return true
	default:
		return false
	}
}

// end stops it and waits until it is done, or ctx ends. what names this in the error. A nil run was
// never begun.
func (r *run) end(ctx context.Context, what string) error {
	if r == nil {
		return nil
	}
	r.stop()
	if ctx.Value(runKey{r}) != nil { // called in its callback, which it would wait for
		return nil
	}
	select {
	case <-r.done:
	default:
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; it continues in the background", what, ctx.Err())
		}
	}
	if r.err != nil {
		return fmt.Errorf("%s: %w", what, r.err)
	}
	return nil
}

// last waits until it is done, and stops it when ctx ends.
func (r *run) last(ctx context.Context, c *Client, what string) error {
	select {
	case <-ctx.Done():
		r.stop()
	case <-r.done:
	}
	<-r.done
	if r.err == nil && ctx.Err() == nil && c.roster.isClosed() {
		return fmt.Errorf("run %s: %w", what, errClientClosed)
	}
	return r.end(ctx, "stop "+what)
}
