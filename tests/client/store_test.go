package clienttest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/simba-resp/simba-resp"
)

// store is a backend that passes requests to an engine or refuses them.
type store struct {
	simba.Backend
	refuses atomic.Bool
	err     error        // of a refusal; nil = the error of a misconfigured store
	asked   atomic.Int64 // how many requests it has refused
}

const noTable = "ERR engine mysql misconfigured: table simba_mutex does not exist"

func (s *store) refuse() error {
	if !s.refuses.Load() {
		return nil
	}
	s.asked.Add(1)
	if s.err != nil {
		return s.err
	}
	return &simba.MisconfiguredError{Engine: "mysql", Err: errors.New("table simba_mutex does not exist")}
}

func (s *store) Acquire(ctx context.Context, r simba.AcquireRequest) (simba.Outcome, simba.Ticket, error) {
	if err := s.refuse(); err != nil {
		return simba.Outcome{}, nil, err
	}
	return s.Backend.Acquire(ctx, r)
}

func (s *store) Guard(ctx context.Context, r simba.GuardRequest) (simba.Outcome, error) {
	if err := s.refuse(); err != nil {
		return simba.Outcome{}, err
	}
	return s.Backend.Guard(ctx, r)
}

func (s *store) Release(ctx context.Context, r simba.ReleaseRequest) (bool, simba.Seq, error) {
	if err := s.refuse(); err != nil {
		return false, 0, err
	}
	return s.Backend.Release(ctx, r)
}

func (s *store) Owner(ctx context.Context, mutex string) (simba.Tenure, simba.Seq, error) {
	if err := s.refuse(); err != nil {
		return simba.Tenure{}, 0, err
	}
	return s.Backend.Owner(ctx, mutex)
}

// withStore puts a store between the server and its engine.
func (w *world) withStore() *store {
	w.stop()
	w.store = &store{Backend: w.engine}
	w.begin()
	return w.store
}
