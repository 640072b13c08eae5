package client

import (
	"context"
	"fmt"
	"sync"
)

// run is one run of a contender or an observer. It is gone when none of its callbacks and requests
// is in progress any more.
type run struct {
	stop func()        // begins to stop and does not wait; it may be called repeatedly
	quit chan struct{} // closed when stop is called
	gone chan struct{} // closed when the run is gone
	done chan struct{} // closed right after gone, or when the release takes longer than Timeout
	err  error         // the error of Stop; read it when done is closed

	finish func(error) // closes done; later calls do nothing
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

// runKey is the key of a value in the contexts of a run's callbacks. The method end looks for this
// value.
type runKey struct{ *run }

// context returns a context for the callbacks of the run. It has the values of base and does not
// end.
func (r *run) context(base context.Context) context.Context {
	return context.WithValue(context.WithoutCancel(base), runKey{r}, true)
}

func (r *run) stopping() bool { return isClosed(r.quit) }

// over reports whether the run is gone. A nil run was never started.
func (r *run) over() bool { return r == nil || isClosed(r.gone) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// end stops the run and waits until it is done, or until ctx ends. The error begins with the
// action, such as "stop the scheduler". A nil run was never started.
func (r *run) end(ctx context.Context, action string) error {
	if r == nil {
		return nil
	}
	r.stop()
	if ctx.Value(runKey{r}) != nil { // a callback calls end, and the run waits for the callback
		return nil
	}
	if !isClosed(r.done) {
		select {
		case <-r.done:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; the run ends later, in the background", action, ctx.Err())
		}
	}
	if r.err != nil {
		return fmt.Errorf("%s: %w", action, r.err)
	}
	return nil
}

// waitDone waits until the run is done, and stops it when ctx ends. The error contains name.
func (r *run) waitDone(ctx context.Context, c *Client, name string) error {
	select {
	case <-ctx.Done():
		r.stop()
	case <-r.done:
	}
	<-r.done
	if r.err == nil && ctx.Err() == nil && c.active.isClosed() {
		return fmt.Errorf("run %s: %w", name, errClientClosed)
	}
	return r.end(ctx, "stop "+name)
}
