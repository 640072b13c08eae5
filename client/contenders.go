package client

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/client/internal/suspend"
)

// suspendCheckEvery is how often a Client with contenders checks whether the machine was suspended. A
// timer of Go stops during a suspension, but a lease does not.
const suspendCheckEvery = 200 * time.Millisecond

var (
	errClientClosed = fmt.Errorf("the Client is %w", ErrClosed)
	// errLeaving is the error of add if the other contender will leave soon.
	errLeaving = fmt.Errorf("the release of the same id is in progress: %w", ErrInUse)
)

// contenders are those of a Client that contend for a mutex, own one, or may still have something at
// the server. Safe for concurrent use.
type contenders struct {
	closing chan struct{} // closed by close

	mu        sync.Mutex // guards what follows
	all       map[contenderKey]*contender
	checks    bool          // a timer calls checkSuspension
	suspended time.Duration // suspend.Time at the last check
	closed    bool
	empty     chan struct{} // closed when the set is closed and empty
	failure   error         // the first error of remove after close, except ErrLost; read it when empty is closed
}

type contenderKey struct{ mutex, id string }

// contender is in the set from its first request until the server has confirmed that it keeps
// nothing for it.
type contender struct {
	contenderKey
	leaving bool   // its release has begun
	lease   *lease // the present tenure; nil = none
}

func newContenders() *contenders {
	return &contenders{
		all: make(map[contenderKey]*contender), closing: make(chan struct{}), empty: make(chan struct{}),
	}
}

// add adds a contender. It refuses a second one with the same mutex and id, because the server would
// treat the two as one.
func (s *contenders) add(t *terms) (*contender, error) {
	k := &contender{contenderKey: contenderKey{t.mutex, t.id}}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch before := s.all[k.contenderKey]; {
	case s.closed:
		return nil, errClientClosed
	case before != nil && before.leaving:
		return nil, errLeaving
	case before != nil:
		return nil, fmt.Errorf("%q contends for %s already: %w", t.id, t.mutex, ErrInUse)
	}
	s.all[k.contenderKey] = k
	if !s.checks {
		s.checks, s.suspended = true, suspend.Time()
		time.AfterFunc(suspendCheckEvery, s.checkSuspension)
	}
	return k, nil
}

// checkSuspension runs every suspendCheckEvery while there are contenders. If the machine was
// suspended, the owners ask the server at once, since the timers of the leases stood still.
func (s *contenders) checkSuspension() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if slept := suspend.Time() - s.suspended; slept > time.Millisecond { // less is an error of measurement
		s.suspended += slept
		for _, k := range s.all {
			if k.lease != nil {
				go k.lease.check()
			}
		}
	}
	if s.checks = len(s.all) != 0; s.checks {
		time.AfterFunc(suspendCheckEvery, s.checkSuspension)
	}
}

// remove removes a contender. err says why the server may still keep something for it.
func (s *contenders) remove(k *contender, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, k.contenderKey)
	if s.closed && s.failure == nil && !errors.Is(err, ErrLost) {
		s.failure = err
	}
	if s.closed && len(s.all) == 0 {
		close(s.empty)
	}
}

// hold notes the present tenure of a contender. It returns errClientClosed if the Client is closed.
func (s *contenders) hold(k *contender, l *lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClientClosed
	}
	k.lease = l
	return nil
}

// owns reports whether a tenure is the present one of a contender. It is true, too, for a contender
// that still asks: it learns of the tenure by its next request.
func (s *contenders) owns(mutex, id string, token uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.all[contenderKey{mutex, id}]
	return k != nil && (k.lease == nil && !k.leaving || k.lease != nil && k.lease.token == token)
}

func (s *contenders) setLeaving(k *contender) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k.leaving = true
}

// working returns the mutex of a contender whose work has not returned; "" = there is none.
func (s *contenders) working() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.all {
		if k.lease != nil && !k.leaving {
			return k.mutex
		}
	}
	return ""
}

// close makes add fail and ends all tenures. It returns a channel that is closed when the set is
// empty.
func (s *contenders) close() <-chan struct{} {
	s.mu.Lock()
	var leases []*lease
	if !s.closed {
		s.closed = true
		close(s.closing)
		if len(s.all) == 0 {
			close(s.empty)
		}
		for _, k := range s.all {
			if k.lease != nil {
				leases = append(leases, k.lease)
			}
		}
	}
	s.mu.Unlock()
	for _, l := range leases {
		l.abort()
	}
	return s.empty
}
