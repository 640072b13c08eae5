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
	stop context.CancelCauseFunc
	over context.Context // ends with the run
	err  error           // read it when over has ended
}

// Start starts the service and does not wait for the server. It returns client.ErrInUse if the
// service runs already. If an error ends the service, slog.Default logs it.
func (s *service) Start() error {
	r, err := s.start(context.Background())
	if err == nil {
		go func() {
			if <-r.over.Done(); r.err != nil {
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
	if s.last != nil && s.last.over.Err() == nil {
		return nil, fmt.Errorf("start %s: %w", s.name, client.ErrInUse)
	}
	r := &run{err: fmt.Errorf("%s: a callback has ended its goroutine", s.name)}
	ctx, r.stop = context.WithCancelCause(ctx)
	over, end := context.WithCancel(context.Background())
	r.over = over
	s.last = r
	go func() {
		defer end()
		defer r.stop(nil) // ctx of Run may last much longer
		if r.err = s.f(ctx); ctx.Err() != nil {
			r.err = nil
		}
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
	case r.over.Err() != nil:
		return r.err
	}
	r.stop(client.ErrReleased)
	select {
	case <-r.over.Done():
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
	<-r.over.Done()
	return r.err
}
