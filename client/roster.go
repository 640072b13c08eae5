package client

import (
	"errors"
	"fmt"
	"sync"
)

var errClientClosed = fmt.Errorf("the Client is %w", ErrClosed)

// roster is what runs by a Client. It grows and shrinks while close waits for it. Safe for
// concurrent use.
type roster struct {
	mu      sync.Mutex // guards what follows
	closed  bool
	members map[*member]struct{}
	ids     map[[2]string]struct{} // of the members: mutex and contender
	empty   chan struct{}          // closed when closed and nothing runs; nil = not closed
	failure error                  // of the first that could not give up what it had, since closed
}

// member is something that runs until it is told to stop.
type member struct {
	mutex, id string // id "" = it contends for nothing
	stop      func() // does not wait
}

func newRoster() *roster {
	return &roster{members: make(map[*member]struct{}), ids: make(map[[2]string]struct{})}
}

// enter takes a member in before it begins to run. No two contenders of a mutex may have the same
// id: to the server they would be one.
func (r *roster) enter(m *member) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := [2]string{m.mutex, m.id}
	switch _, taken := r.ids[name]; {
	case r.closed:
		return errClientClosed
	case taken && m.id != "":
		return fmt.Errorf("%q contends for %s already: %w", m.id, m.mutex, ErrInUse)
	}
	r.members[m] = struct{}{}
	if m.id != "" {
		r.ids[name] = struct{}{}
	}
	return nil
}

// leave is called when nothing of a member is left, or with the error why something is left at the
// server.
func (r *roster) leave(m *member, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, m)
	if m.id != "" {
		delete(r.ids, [2]string{m.mutex, m.id})
	}
	if r.closed && r.failure == nil && !errors.Is(err, ErrLost) {
		r.failure = err
	}
	if r.closed && len(r.members) == 0 {
		close(r.empty)
	}
}

// close refuses new members, tells all to stop, and returns what is closed when they have.
func (r *roster) close() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.empty
	}
	r.closed, r.empty = true, make(chan struct{})
	if len(r.members) == 0 {
		close(r.empty)
	}
	for m := range r.members {
		m.stop()
	}
	return r.empty
}

// left returns why something is left at the server, once all have gone.
func (r *roster) left() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

func (r *roster) isClosed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}
