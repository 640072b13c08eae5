package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

var (
	errSessionOver = errors.New("the session with the ensemble is over")
	errNoAnswer    = errors.New("no answer in time")
	errCutOff      = errors.New("not connected to the ensemble")
	errUnknown     = errors.New("the session or the connection with the ensemble ended before the answer came")
)

// session is one session with the ensemble. The nodes that it made live as long as
// it does; one of them, its marker, says no more than that. It reconnects by itself, but is never used again
// when it is over for us. If the ensemble says that it is over, it makes no more connections: the library would go on with a
// new session under the old connection, and what was asked before would be done there.
//
// The library's requests take no context. A session makes them in goroutines of their own
// and stops waiting at the deadline; the connection is cut then if nothing
// came from it meanwhile, which ends the request and has the library connect anew.
type session struct {
	paths
	tag          tag
	acl          []zk.ACL
	leaseChanged func(guid) // is told of lease nodes that changed under a watch
	log          *slog.Logger
	conn         *zk.Conn
	quit         <-chan zk.Event // closed when the library's goroutines have ended
	calls        sync.WaitGroup  // requests that may still be in the library

	over chan struct{} // closed when the session is over

	lastRead atomic.Int64 // when bytes last came, in nanoseconds since epoch
	zxid     atomic.Int64 // the largest that a reply had; see wire

	mu               sync.Mutex    // guards what follows
	netConn          *trackedConn  // the connection in use, nil = none yet
	abandoned        bool          // no new connections
	reconnectAllowed bool          // but to be ended, if it is over for us
	up               chan struct{} // closed while it is connected
	ready            bool          // up is closed
	cause            error         // why it is over
	timeout          time.Duration // as the ensemble decided
	confirmed        time.Time     // an exchange that the ensemble's leader took part in began here
}

var epoch = time.Now()

// openSession connects and returns when the ensemble has given it a session.
func openSession(ctx context.Context, t target, timeout, handshake time.Duration, touch func(guid), log *slog.Logger) (*session, error) {
	s := &session{
		paths:        paths{t.chroot},
		tag:          newTag(),
		acl:          zk.WorldACL(zk.PermAll),
		leaseChanged: touch,
		log:          log,
		over:         make(chan struct{}),
		up:           make(chan struct{}),
	}
	if t.scheme != "" {
		s.acl = zk.AuthACL(zk.PermAll)
	}
	d := dialer{s, handshake}
	s.mu.Lock() // events come before Connect returns
	conn, quit, err := zk.Connect(t.servers, timeout,
		zk.WithDialer(d.dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(s.event),
		zk.WithLogger(libraryLog{log}), zk.WithLogInfo(false))
	s.conn, s.quit = conn, quit
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err := s.authenticate(ctx, t); err != nil {
		s.end(err)
		s.close()
		return nil, err
	}
	return s, nil
}

// greet waits for the session and says who we are.
func (s *session) authenticate(ctx context.Context, t target) error {
	if err := s.await(ctx); err != nil {
		return err
	}
	if t.scheme == "" {
		return nil
	}
	_, err := do(ctx, s, reads, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth(t.scheme, t.auth)
	})
	if err != nil {
		return fmt.Errorf("authenticate: %w", err)
	}
	return nil
}

// event takes the library's events. It is called by the library's goroutines.
func (s *session) event(e zk.Event) {
	if g, ok := strings.CutPrefix(e.Path, s.leases()+"/"); ok && (e.Type == zk.EventNodeDataChanged || e.Type == zk.EventNodeDeleted) {
		s.leaseChanged(guid(g))
	}
	if e.Type != zk.EventSession {
		return
	}
	switch e.State {
	case zk.StateHasSession:
		s.mu.Lock()
		if s.netConn != nil {
			s.netConn.established.Store(true)
			s.timeout = s.netConn.response.timeout()
		}
		if !s.ready {
			s.ready = true
			close(s.up)
		}
		if s.confirmed.IsZero() {
			s.confirmed = time.Now()
		}
		s.mu.Unlock()
	case zk.StateDisconnected:
		s.mu.Lock()
		if s.ready {
			s.ready = false
			s.up = make(chan struct{})
		}
		s.mu.Unlock()
	case zk.StateExpired:
		s.mu.Lock()
		s.abandoned = true
		s.mu.Unlock()
		s.end(errors.New("the ensemble says that the session has expired"))
	}
}

// end ends the session for us, whatever the ensemble thinks.
func (s *session) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
		close(s.over)
	}
}

// alive reports whether the session is not over.
func (s *session) alive() bool {
	select {
	case <-s.over:
		return false
	default:
		return true
	}
}

// await returns when the session can be used.
func (s *session) await(ctx context.Context) error {
	s.mu.Lock()
	up, ready := s.up, s.ready
	s.mu.Unlock()
	if ready {
		return nil
	}
	select {
	case <-up:
		return nil
	case <-s.over:
		return errSessionOver
	case <-ctx.Done():
		return errCutOff
	}
}

// enter notes a request that must have ended before the session is closed.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return false
	}
	s.calls.Add(1)
	return true
}

// confirm notes that an exchange that began at start reached the leader.
func (s *session) confirm(start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if start.After(s.confirmed) {
		s.confirmed = start
	}
}

// doubtful is when we give the session up, if nothing is confirmed before: two thirds of its
// timeout after the last exchange that is known to have reached the leader, as
// ZooKeeper's own clients do. A follower tells the leader late of whom it has heard,
// so the ensemble may count from somewhat earlier than we do.
func (s *session) giveUpAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed.Add(s.timeout * 2 / 3)
}

// ended is when the ensemble would end the session by itself, if it heard nothing since the last exchange that is confirmed.
func (s *session) expiresAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed.Add(s.timeout)
}

func (s *session) negotiated() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// hangUp cuts the connection unless something has come from it since start.
func (s *session) cutIfSilent(start time.Time) {
	if s.lastRead.Load() > int64(start.Sub(epoch)) {
		return
	}
	s.mu.Lock()
	c := s.netConn
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// close ends the session in the ensemble too, if it can be reached, so that its nodes
// go at once, and waits for the library's goroutines.
func (s *session) close() {
	s.end(errSessionOver)
	s.conn.Close()
	s.leave()
}

// finish ends a session in the ensemble that was given up: when its timeout has passed, so that its owners have
// as long to hear of it as if it had ended there by itself. That takes longer by itself if something was on its way until the network
// was whole again. ctx ends when the session is known to be over, or is to be left to the ensemble.
func (s *session) closeAfterTimeout(ctx context.Context) {
	defer s.abandon() // nothing, if it was closed
	if !sleep(ctx, time.Until(s.expiresAt())) {
		return
	}
	s.mu.Lock()
	up := s.up
	s.mu.Unlock()
	select {
	case <-up:
		s.close()
	case <-ctx.Done():
	}
}

// recall says whether a session that was given up may connect: only while the ensemble is known to answer. Else each try, whose answer is
// lost, would have it keep the session for another timeout.
func (s *session) allowReconnect(answers bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reconnectAllowed = answers
}

// barredLocked reports whether it makes no new connections.
func (s *session) isBarredLocked() bool { return s.abandoned || s.cause != nil && !s.reconnectAllowed }

// sleep reports false if ctx has ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// abandon lets the ensemble end the session when it has heard nothing for the session's timeout.
func (s *session) abandon() {
	s.end(errSessionOver)
	s.silence()
	s.conn.Close()
	s.leave()
}

// silence lets nothing more be sent. The library's Close asks the ensemble to end the session; on a
// connection that fails to send that it returns at once, where on a closed one it waits a second.
func (s *session) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned = true
	if s.netConn != nil {
		s.netConn.silent.Store(true)
	}
}

func (s *session) leave() {
	s.cut()
	for range s.quit {
	}
	s.calls.Wait()
}

func (s *session) cut() {
	s.mu.Lock()
	s.abandoned = true
	c := s.netConn
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
}
