package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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
	tag      tag
	acl      []zk.ACL
	patience time.Duration // the longest time without a packet from the ensemble
	check    func()        // called for each new connection
	conn     *zk.Conn
	quit     <-chan zk.Event // closed when the library's goroutines have ended
	ctx      context.Context // ends when the session is over
	end      context.CancelCauseFunc
	zxid     int64 // the largest in any reply, see trackedConn

	// containers is held while a container is created. Otherwise the library's Close may let
	// CreateContainer return an answer that another goroutine still decodes.
	containers sync.RWMutex

	mu        sync.Mutex    // guards the fields below
	netConn   *trackedConn  // the last connection; nil = none yet
	dialErr   error         // of the last attempt to connect
	connected chan struct{} // closed while the session is connected
	timeout   time.Duration // as the ensemble chose it
	confirmed time.Time     // start of the last write that reached the ensemble's leader
}

// openSession returns when the ensemble has created a session and its marker.
func (st *store) openSession(ctx context.Context) (*session, error) {
	s := &session{
		paths: paths{st.target.chroot}, tag: newTag(), acl: zk.WorldACL(zk.PermAll), check: st.hooks.Connected,
		patience:  min(st.options.Timeout, st.options.SessionTimeout/3),
		connected: make(chan struct{}),
	}
	if st.target.auth != nil {
		s.acl = zk.AuthACL(zk.PermAll)
	}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	log := slog.NewLogLogger(st.log.With("from", "zookeeper client").Handler(), slog.LevelDebug)
	s.mu.Lock() // events may arrive before Connect returns
	conn, quit, err := zk.Connect(st.target.servers, st.options.SessionTimeout,
		zk.WithDialer(s.dial), zk.WithHostProvider(&hosts{}), zk.WithEventCallback(s.event),
		zk.WithLogger(log), zk.WithLogInfo(false))
	s.conn, s.quit = conn, quit
	s.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	if err = s.await(ctx); errors.Is(err, errCutOff) {
		err = s.whyCutOff()
	}
	if err == nil && st.target.auth != nil {
		err = s.do(ctx, reads, func(c *zk.Conn) error { return c.AddAuth("digest", st.target.auth) })
	}
	if err == nil {
		err = st.heartbeat(ctx, s)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// whyCutOff returns why there is no session yet.
func (s *session) whyCutOff() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.netConn != nil:
		return fmt.Errorf("%v accepts connections but opens no session in time: "+
			"is it a ZooKeeper with a quorum, and is its maxClientCnxns at least %d?", s.netConn.RemoteAddr(), sessions)
	case s.dialErr != nil:
		return fmt.Errorf("cannot connect: %w", s.dialErr)
	}
	return errCutOff
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
		s.timeout = s.netConn.timeout
		if s.confirmed.IsZero() {
			s.confirmed = time.Now()
		}
		close(s.connected)
	case zk.StateDisconnected:
		s.mu.Lock()
		defer s.mu.Unlock()
		select {
		case <-s.connected:
			s.connected = make(chan struct{})
		default: // it was not connected
		}
	case zk.StateExpired:
		s.end(errors.New("the ensemble reports that the session has expired"))
	}
}

func (s *session) alive() bool { return s.ctx.Err() == nil }

// await waits until the session is connected.
func (s *session) await(ctx context.Context) error {
	s.mu.Lock()
	connected := s.connected
	s.mu.Unlock()
	select {
	case <-connected:
	case <-s.ctx.Done():
	case <-ctx.Done():
	}
	switch {
	case !s.alive():
		return errSessionOver
	case ctx.Err() != nil:
		return errCutOff
	}
	return nil
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

// close closes the library's connection, and waits for its goroutines. Unless the session is over, it
// asks the ensemble to end the session, so that its nodes are deleted at once.
func (s *session) close() {
	s.containers.Lock()
	s.conn.Close()
	s.containers.Unlock()
	s.end(errSessionOver)
	s.mu.Lock() // the dialer opens no other connection from here on
	c := s.netConn
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
	for range s.quit {
	}
}

// abandon sends nothing more in the session, and leaves it to its timeout in the ensemble.
func (s *session) abandon() {
	s.end(errSessionOver)
	s.close()
}
