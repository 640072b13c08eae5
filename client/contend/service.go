// Package contend has the contention service, the scheduler and the locker of Simba, a library for
// the JVM, on top of package client. A program that does not come from Simba should use the methods
// of client.Client: Lead, Every and Do.
package contend

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/simba-resp/simba-resp/client"
)

// service runs a function until it is stopped. Safe for concurrent use.
type service struct {
	name string
	f    func(context.Context) error

	mu   sync.Mutex // guards last
	last *run       // nil = never started
}

// run is one run of a service.
type run struct {
	stop func()
	done chan struct{} // closed when the run has ended
	err  error         // read it when done is closed
}

// Start starts the service and does not wait for the server. It returns client.ErrInUse if the
// service runs already. If an error ends the service, slog.Default logs it.
func (s *service) Start() error {
	r, err := s.start(context.Background())
	if err == nil {
		go func() {
			if <-r.done; r.err != nil {
				slog.Error("a contention service has ended", "service", s.name, "err", r.err)
			}
		}()
	}
	return err
}

func (s *service) start(ctx context.Context) (*run, error) {
	if ctx == nil {
		return nil, fmt.Errorf("start %s: ctx is nil", s.name)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && !s.last.isDone() {
		return nil, fmt.Errorf("start %s: %w", s.name, client.ErrInUse)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &run{stop: func() { cancel(client.ErrReleased) }, done: make(chan struct{})}
	s.last = r
	r.err = fmt.Errorf("%s: a callback has ended its goroutine", s.name)
	go func() {
		defer close(r.done)
		err := s.f(ctx)
		if ctx.Err() != nil {
			err = nil
		}
		r.err = err
	}()
	return r, nil
}

// Stop stops the service: it ends the ownership, waits for the callbacks, and releases the mutex or
// the queue entry. It waits for the server's reply at most for the Timeout of the Client. If ctx ends
// first, it returns the error of ctx, and the service continues to stop in the background. On a
// stopped service, Stop returns the error of the last run. A callback must not wait for Stop, unless
// with its own context.
func (s *service) Stop(ctx context.Context) error {
	s.mu.Lock()
	r := s.last
	s.mu.Unlock()
	switch {
	case ctx == nil:
		return fmt.Errorf("stop %s: ctx is nil", s.name)
	case r == nil:
		return nil
	case r.isDone():
		return r.err
	}
	r.stop()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("stop %s: %w; it ends later, in the background", s.name, ctx.Err())
	}
}

// Run starts the service, and waits until ctx ends or another goroutine calls Stop. It returns when
// the callbacks have returned and the mutex is released. It returns nil after ctx or Stop, otherwise
// the error that has ended the service.
func (s *service) Run(ctx context.Context) error {
	r, err := s.start(ctx)
	if err != nil {
		return err
	}
	<-r.done
	return r.err
}

func (r *run) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}
