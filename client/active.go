package client

import (
	"errors"
	"fmt"
	"sync"
)

var errClientClosed = fmt.Errorf("the Client is %w", ErrClosed)

// activeSet is the set of the running contenders and observers of a Client. Safe for concurrent
// use.
type activeSet struct {
	mu      sync.Mutex // guards what follows
	closed  bool
	all     map[*active]struct{}
	ids     map[[2]string]struct{} // mutex and id of each contender
	empty   chan struct{}          // closed when the set is closed and empty; nil = not closed
	failure error                  // the first error of remove after close, except ErrLost
}

// active is a contender or observer that runs until it is stopped.
type active struct {
	mutex, id string // an observer has none
	stop      func() // begins to stop; does not wait
}

func newActiveSet() *activeSet {
	return &activeSet{all: make(map[*active]struct{}), ids: make(map[[2]string]struct{})}
}

// add adds a. Call it before a begins to run. It refuses a second contender with the same mutex and
// id, because the server would treat the two as one.
func (s *activeSet) add(a *active) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := [2]string{a.mutex, a.id}
	switch _, taken := s.ids[name]; {
	case s.closed:
		return errClientClosed
	case taken && a.id != "":
		return fmt.Errorf("%q contends for %s already: %w", a.id, a.mutex, ErrInUse)
	}
	s.all[a] = struct{}{}
	if a.id != "" {
		s.ids[name] = struct{}{}
	}
	return nil
}

// remove removes a. Call it when a has ended. err says why the server may still keep the lease or
// the queue entry; nil means that the server keeps neither.
func (s *activeSet) remove(a *active, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, a)
	if a.id != "" {
		delete(s.ids, [2]string{a.mutex, a.id})
	}
	if s.closed && s.failure == nil && !errors.Is(err, ErrLost) {
		s.failure = err
	}
	if s.closed && len(s.all) == 0 {
		close(s.empty)
	}
}

// close makes add fail and begins to stop each member. It returns a channel that is closed when the
// set is empty.
func (s *activeSet) close() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.empty
	}
	s.closed, s.empty = true, make(chan struct{})
	if len(s.all) == 0 {
		close(s.empty)
	}
	for a := range s.all {
		a.stop()
	}
	return s.empty
}

// err returns why the server may still keep a lease or queue entry. Call it when the set is empty.
func (s *activeSet) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failure
}

func (s *activeSet) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
