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
	errUnknown     = errors.New("the session or the connection with the ensemble ended before the answer arrived")
)

// session is one session with the ensemble. Its nodes live as long as the session. Its marker node
// shows that the ensemble still has the session. A session reconnects by itself. Once this server
// has given it up, it serves no more requests.
//
// If the ensemble reports that the session has expired, the session opens no more connections.
// Otherwise the library would continue with a new session, which could execute old requests.
//
// The library's requests take no context. So a session runs them in goroutines of their own and
// stops waiting at the deadline. If nothing has arrived on the connection meanwhile, the session
// also cuts the connection. Then the library ends the request and reconnects.
type session struct {
	paths
	tag          tag
	acl          []zk.ACL
	leaseChanged func(guid) // called when a watched lease node has changed
	connected    func()     // called for each new connection
	log          *slog.Logger
	conn         *zk.Conn
	quit         <-chan zk.Event // closed when the library's goroutines have ended
	calls        sync.WaitGroup  // requests that are still in the library

	over chan struct{} // closed when the session is over

	lastRead atomic.Int64 // when bytes last arrived, in nanoseconds since epoch
	zxid     atomic.Int64 // the largest transaction id in any reply; see trackedConn

	mu         sync.Mutex    // guards the fields below
	netConn    *trackedConn  // the current connection; nil = none yet
	abandoned  bool          // opens no new connections
	up         chan struct{} // closed while the session is connected
	ready      bool          // up is closed
	cause      error         // why the session is over; nil = it is not
	timeout    time.Duration // as the ensemble chose it
	confirmed  time.Time     // start of the last exchange that reached the ensemble's leader
	heartbeats []exchange    // the last ones, in order
}

var epoch = time.Now()

// openSession returns when the ensemble has created a session.
func openSession(ctx context.Context, t target, timeout, handshake time.Duration, leaseChanged func(guid), connected func(), log *slog.Logger) (*session, error) {
	s := &session{
		paths:        paths{t.chroot},
		tag:          newTag(),
		acl:          zk.WorldACL(zk.PermAll),
		leaseChanged: leaseChanged,
		connected:    connected,
		log:          log,
		over:         make(chan struct{}),
		up:           make(chan struct{}),
	}
	if t.scheme != "" {
		s.acl = zk.AuthACL(zk.PermAll)
	}
	d := dialer{s, handshake}
	s.mu.Lock() // events may arrive before Connect returns
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

// event handles the library's events. It runs on the library's goroutines.
func (s *session) event(e zk.Event) {
	if g, ok := strings.CutPrefix(e.Path, s.leases()+"/"); ok && (e.Type == zk.EventNodeDataChanged || e.Type == zk.EventNodeDeleted) {
		s.leaseChanged(guid(g))
	}
	if e.Type != zk.EventSession {
		return
	}
	switch e.State {
	case zk.StateHasSession:
		s.connected()
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
		s.end(errors.New("the ensemble reports that the session has expired"))
	}
}

// end gives the session up. Only the first cause counts.
func (s *session) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
		close(s.over)
	}
}

func (s *session) alive() bool {
	select {
	case <-s.over:
		return false
	default:
		return true
	}
}

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

// enter registers a request, for which leave waits. It returns false if the session was given up.
func (s *session) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		return false
	}
	s.calls.Add(1)
	return true
}

// confirm records that an exchange which began at start reached the leader.
func (s *session) confirm(start time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if start.After(s.confirmed) {
		s.confirmed = start
	}
}

// certainLife returns how long a session certainly lives after an exchange that reached the leader:
// like for ZooKeeper's own clients, two thirds of the timeout. A follower reports its sessions to
// the leader with a delay. So the ensemble may count the timeout from a time before that exchange.
func certainLife(timeout time.Duration) time.Duration { return timeout * 2 / 3 }

// giveUpAt returns when this server must give the session up.
func (s *session) giveUpAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed.Add(certainLife(s.timeout))
}

func (s *session) negotiated() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// LongestLease returns the longest lease, ttl + transition, that the sessions vouch for: half of
// their shortest timeout. The ensemble chooses the timeout anew whenever a session reconnects.
func (b *Backend) LongestLease() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	shortest := b.slots[0].session.negotiated()
	for _, l := range b.slots[1:] {
		shortest = min(shortest, l.session.negotiated())
	}
	return shortest / 2
}

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

// close gives the session up and asks the ensemble to end it, so that its nodes are deleted at
// once. It waits for the library's goroutines. First it waits for the answers to requests, for a
// moment: a request that the library's Close ends returns its answer while another goroutine may
// still be decoding it.
func (s *session) close() {
	s.end(errSessionOver)
	answered := make(chan struct{})
	go func() {
		s.calls.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(500 * time.Millisecond):
	}
	s.conn.Close()
	s.leave()
	<-answered
}

// sleep waits for d. It returns false if ctx ends first.
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

func (s *session) barredLocked() bool { return s.abandoned || s.cause != nil }

// abandon stops using the session and leaves it to its timeout in the ensemble.
func (s *session) abandon() {
	s.end(errSessionOver)
	s.silence()
	s.conn.Close()
	s.leave()
}

// silence makes all sends fail. So the library's Close cannot ask the ensemble to end the session,
// and returns at once. If the connection were closed instead, the library's Close would wait a
// second.
func (s *session) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned = true
	if s.netConn != nil {
		s.netConn.silent.Store(true)
	}
}

// leave cuts the connection, and waits for the library's goroutines and requests.
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
