package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

var (
	errSessionOver = errors.New("the session with the ensemble is over")
	errNoAnswer    = errors.New("no answer in time")
	errCutOff      = errors.New("not connected to the ensemble")
)

// session is one session with the ensemble. Its nodes live as long as the session. Its marker node
// shows that the ensemble still has the session. A session reconnects by itself. Once this server
// has given it up, it sends nothing more, not even a request to close it.
//
// If the ensemble reports that the session has expired, the session opens no more connections.
// Otherwise the library would continue with a new session, which could execute old requests.
type session struct {
	paths
	tag   tag
	acl   []zk.ACL
	check func() // called for each new connection
	conn  *zk.Conn
	quit  <-chan zk.Event // closed when the library's goroutines have ended
	calls sync.WaitGroup  // requests that are in the library
	ctx   context.Context // ends when the session is over
	end   context.CancelCauseFunc
	zxid  atomic.Int64 // the largest in any reply, see trackedConn

	mu        sync.Mutex    // guards the fields below
	netConn   *trackedConn  // the current connection; nil = none yet
	closing   bool          // takes no more requests
	ready     bool          // connected
	changed   chan struct{} // closed when ready changes
	timeout   time.Duration // as the ensemble chose it
	confirmed time.Time     // start of the last write that reached the ensemble's leader
}

// openSession returns when the ensemble has created a session.
func openSession(ctx context.Context, t target, timeout, patience time.Duration, check func(), log *slog.Logger) (*session, error) {
	s := &session{
		paths: paths{t.chroot}, tag: newTag(), acl: zk.WorldACL(zk.PermAll), check: check,
		changed: make(chan struct{}),
	}
	if t.scheme != "" {
		s.acl = zk.AuthACL(zk.PermAll)
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	d := dialer{s, patience}
	s.mu.Lock() // events may arrive before Connect returns
	conn, quit, err := zk.Connect(t.servers, timeout,
		zk.WithDialer(d.dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(s.event),
		zk.WithLogger(libraryLog{log}), zk.WithLogInfo(false))
	s.conn, s.quit = conn, quit
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	err = s.await(ctx)
	if err == nil && t.scheme != "" {
		err = s.do(ctx, reads, func(c *zk.Conn) error { return c.AddAuth(t.scheme, t.auth) })
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("open a session: %w", err)
	}
	return s, nil
}

// event handles the library's events. It runs on the library's goroutines.
func (s *session) event(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	switch e.State {
	case zk.StateHasSession:
		s.check()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.netConn.established.Store(true)
		s.timeout = s.netConn.timeout()
		if s.confirmed.IsZero() {
			s.confirmed = time.Now()
		}
		s.setReadyLocked(true)
	case zk.StateDisconnected:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.setReadyLocked(false)
	case zk.StateExpired:
		s.end(errors.New("the ensemble reports that the session has expired"))
	}
}

func (s *session) setReadyLocked(ready bool) {
	if s.ready != ready {
		s.ready = ready
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *session) alive() bool { return s.ctx.Err() == nil }

// await waits until the session is connected.
func (s *session) await(ctx context.Context) error {
	for {
		s.mu.Lock()
		ready, changed := s.ready, s.changed
		s.mu.Unlock()
		switch {
		case !s.alive():
			return errSessionOver
		case ctx.Err() != nil:
			return errCutOff
		case ready:
			return nil
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
		case <-ctx.Done():
		}
	}
}

// confirm records that a write which began at start reached the leader.
func (s *session) confirm(start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if start.After(s.confirmed) {
		s.confirmed = start
	}
}

// giveUpAt returns when this server must give the session up: two thirds of the timeout after the
// last confirmed write, like ZooKeeper's own clients. A follower reports its sessions to the leader
// with a delay. So the ensemble may count the timeout from a time before that write.
func (s *session) giveUpAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed.Add(s.timeout * 2 / 3)
}

func (s *session) negotiated() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// close asks the ensemble to end the session, so that its nodes are deleted at once. First it waits
// for the answers to requests, for a moment: a request that the library's Close ends returns while
// another goroutine may still be decoding its answer.
func (s *session) close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	answered := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(500 * time.Millisecond):
	}
	s.leave()
	<-answered
}

// abandon sends nothing more in the session, and leaves it to its timeout in the ensemble.
func (s *session) abandon() {
	s.end(errSessionOver)
	s.mu.Lock()
	if s.netConn != nil {
		s.netConn.silent.Store(true) // so that the library's Close sends nothing, and returns at once
	}
	s.mu.Unlock()
	s.leave()
}

// leave closes the library's connection, and waits for its goroutines.
func (s *session) leave() {
	s.conn.Close()
	s.end(errSessionOver)
	<-s.ctx.Done()
	s.mu.Lock() // the dialer opens no other connection from here on
	c := s.netConn
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
	for range s.quit {
	}
	s.calls.Wait()
}
