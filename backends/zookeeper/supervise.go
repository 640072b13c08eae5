package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

const (
	// beats is how often in a session's timeout we show that we are there.
	beats = 3
	// longestBeat bounds the time between two, so that a dead connection is found soon.
	longestBeat = time.Second
	// retryPause is between attempts to do something that must be done some time.
	retryPause = 100 * time.Millisecond
	// sweepEvery is how often we look whether what we follow is still wanted.
	sweepEvery = 10 * time.Second
)

func (b *Backend) connect(ctx context.Context) (*session, error) {
	return openSession(ctx, b.target, b.options.SessionTimeout, min(b.options.Timeout, 2*time.Second), b.touched, b.log)
}

// join opens a session and makes its marker.
func (b *Backend) join(ctx context.Context) (*session, error) {
	s, err := b.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.register(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// firstSession connects and checks what must be as we need it.
func (b *Backend) firstSession(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	s, err := b.connect(ctx)
	if err != nil {
		if errors.Is(err, errCutOff) {
			err = b.diagnose(ctx)
		}
		return nil, fmt.Errorf("zookeeper at %s: %w", b.options.Servers, err)
	}
	if err = b.check(ctx, s); err == nil {
		err = s.register(ctx)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("zookeeper at %s: %w", b.options.Servers, err)
	}
	if got := s.negotiated(); got != b.options.SessionTimeout {
		b.log.Warn("the ensemble decided on another session timeout; see its minSessionTimeout and maxSessionTimeout",
			"asked", b.options.SessionTimeout, "got", got)
	}
	return s, nil
}

// firstSessions opens a session for each lane.
func (b *Backend) firstSessions(ctx context.Context) ([]*session, error) {
	first, err := b.firstSession(ctx)
	if err != nil {
		return nil, err
	}
	sessions := make([]*session, b.options.Sessions)
	sessions[0] = first
	ctx, cancel := context.WithTimeout(ctx, b.options.Timeout)
	defer cancel()
	err = each(len(sessions)-1, func(i int) (err error) {
		sessions[i+1], err = b.join(ctx)
		return err
	})
	if err == nil {
		return sessions, nil
	}
	for _, s := range sessions {
		if s != nil {
			s.close()
		}
	}
	return nil, fmt.Errorf("zookeeper at %s: open %d sessions (see its maxClientCnxns): %w", b.options.Servers, len(sessions), err)
}

// diagnose says why there is no session: the library does not tell.
func (b *Backend) diagnose(context.Context) error {
	var last error
	for _, h := range b.target.servers {
		c, err := net.DialTimeout("tcp", h, time.Second)
		if err == nil {
			c.Close()
			return fmt.Errorf("%s accepts connections but opens no session within %v: is it a ZooKeeper, and has it a quorum?", h, b.options.Timeout)
		}
		last = err
	}
	return fmt.Errorf("cannot connect: %w", last)
}

// check finds out whether we may and can.
func (b *Backend) check(ctx context.Context, s *session) error {
	if s.root != "" {
		_, err := s.get(ctx, s.root)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return fmt.Errorf("the chroot %s does not exist; create it first", s.root)
		case errors.Is(err, zk.ErrNoAuth):
		case err != nil:
			return fmt.Errorf("read the chroot %s: %w", s.root, err)
		}
	}
	err := b.probe(ctx, s)
	for errors.Is(err, zk.ErrNoNode) && ctx.Err() == nil { // ZooKeeper has removed the empty container in between
		err = b.probe(ctx, s)
	}
	switch {
	case errors.Is(err, zk.ErrNoAuth) && b.target.scheme == "":
		return fmt.Errorf("no permission to write below %s and %s; they belong to a user: give --zookeeper-auth", s.mutexes(), s.leases())
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("no permission to write below %s and %s; check user and password of --zookeeper-auth", s.mutexes(), s.leases())
	case errors.Is(err, zk.ErrInvalidACL):
		return errors.New("the ensemble does not take the authentication; check --zookeeper-auth")
	case err != nil && strings.HasSuffix(err.Error(), "unknown error: -6"): // Unimplemented, which the library does not name
		return errors.New("it has no container nodes; ZooKeeper 3.5 or later is needed")
	case err != nil:
		return fmt.Errorf("create %s and %s: %w", s.mutexes(), s.leases(), err)
	}
	return nil
}

// probe makes the nodes that everything is in, and does once what is done to those within.
func (b *Backend) probe(ctx context.Context, s *session) error {
	if err := s.ensureLeases(ctx); err != nil {
		return err
	}
	if err := s.makeContainer(ctx, s.mutexes()); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	mutex, lease := s.mutexes()+"/probe-"+string(s.tag), s.leases()+"/probe-"+string(s.tag)
	_, err := s.multi(ctx,
		&zk.CreateRequest{Path: mutex, Acl: s.acl, Flags: zk.FlagEphemeral},
		&zk.CreateRequest{Path: lease, Acl: s.acl, Flags: zk.FlagEphemeral},
		&zk.SetDataRequest{Path: lease, Version: 0},
		&zk.DeleteRequest{Path: lease, Version: 1},
		&zk.DeleteRequest{Path: mutex, Version: 0})
	return err
}

// supervise keeps a lane's session with the ensemble until the engine is closed.
func (b *Backend) supervise(l *lane, s *session) {
	for {
		b.keep(s)
		polling := b.lost(l, s)
		if b.life.Err() != nil {
			s.abandon() // nothing, unless it was lost just then
			return
		}
		ctx, over := context.WithCancel(b.life)
		ended := s
		b.all.Go(func() { ended.finish(ctx) }) // this goroutine is one of all, so that does not race with Close
		s = b.successor(l, ended)
		over()
		if s == nil {
			return
		}
		b.mu.Lock()
		l.session, l.fault = s, nil
		close(l.renewed)
		l.renewed = make(chan struct{})
		b.mu.Unlock()
		b.log.Info("there is a new session with the ensemble")
		b.rejoinAll(l)
		b.recall(polling)
	}
}

// keep shows the ensemble that we are there and finds out if the session is over.
func (b *Backend) keep(s *session) {
	ticker := time.NewTicker(min(s.negotiated()/beats, longestBeat))
	defer ticker.Stop()
	over := time.NewTimer(time.Until(s.doubtful()))
	defer over.Stop()
	var beating chan struct{}
	for {
		select {
		case <-ticker.C:
			if beating != nil {
				select {
				case <-beating:
				default:
					continue
				}
			}
			beating = make(chan struct{})
			done := beating
			b.all.Go(func() {
				defer close(done)
				b.beat(s)
			})
		case <-over.C:
			if left := time.Until(s.doubtful()); left > 0 {
				over.Reset(left)
				continue
			}
			s.end(fmt.Errorf("the ensemble confirmed nothing for two thirds of %v", s.negotiated()))
		case <-s.over:
			return
		case <-b.life.Done():
			b.farewell(s)
			return
		}
	}
}

func (b *Backend) beat(s *session) {
	ctx, cancel := context.WithTimeout(b.life, min(b.options.Timeout, s.negotiated()/beats))
	defer cancel()
	start := time.Now()
	mtime, err := s.beat(ctx)
	switch {
	case err == nil:
		b.clock.observe(mtime, start, time.Now())
	case errors.Is(err, zk.ErrNoNode):
		err = s.register(ctx) // somebody has deleted the marker, or what it was in
	}
	if err != nil && b.life.Err() == nil {
		b.log.Debug("the ensemble did not confirm the session", "err", err)
	}
}

// farewell ends the session at Close, unless somebody may have been told of a tenure in it.
func (b *Backend) farewell(s *session) {
	ctx, cancel := context.WithTimeout(context.Background(), b.options.Timeout)
	defer cancel()
	waiting, held := b.kept(s)
	owns := make([]bool, len(waiting))
	_ = each(len(waiting), func(i int) (err error) { // where it is not known the session is left to its timeout
		owns[i], err = b.dismiss(ctx, waiting[i])
		owns[i] = owns[i] || err != nil
		return err
	})
	if held || slices.Contains(owns, true) {
		s.abandon()
		return
	}
	s.close()
}

// dismiss deletes a waiter's node, unless its contender has come to own the mutex by it, as it may through another server that
// we have yet to hear of.
func (b *Backend) dismiss(ctx context.Context, n *node) (owns bool, err error) {
	b.mu.Lock()
	version := n.version
	b.mu.Unlock()
	for {
		_, _, err := n.s.delete(ctx, n, version, nil, false)
		if !errors.Is(err, zk.ErrBadVersion) {
			return false, gone(err)
		}
		lease, err := n.s.get(ctx, n.s.lease(n.guid))
		if err != nil {
			return false, gone(err)
		}
		if rec, err := decodeRecord(lease.data); err == nil && rec.Kind == kindOwner && !rec.Over {
			return true, nil
		}
		version = lease.stat.Version
	}
}

// successor opens the session that comes after one that was given up, and returns it when the ensemble has ended that one: until
// then other servers may go on with its tenures, and requests of its own may still be on their way.
func (b *Backend) successor(l *lane, old *session) *session {
	said := false
	for {
		s := b.reconnect(l)
		if s == nil {
			return nil
		}
		old.recall(true)
		for s.alive() && time.Now().Before(s.doubtful()) {
			ctx, cancel := context.WithTimeout(b.life, min(b.options.Timeout, s.negotiated()/beats))
			free, err := s.outlives(ctx, old.tag)
			cancel()
			if free {
				return s
			}
			if !said && b.life.Err() == nil {
				b.log.Warn("waiting until the ensemble has ended the session that was lost", "err", err)
				said = true
			}
			if !b.pause(retryPause) {
				break
			}
		}
		old.recall(false)
		s.close() // nobody has used it
		if b.life.Err() != nil {
			return nil
		}
	}
}

// reconnect opens a lane's next session, however long that takes; nil = the engine is closed.
func (b *Backend) reconnect(l *lane) *session {
	said := false
	for {
		ctx, cancel := context.WithTimeout(b.life, max(b.options.Timeout, 5*time.Second))
		s, err := b.join(ctx)
		cancel()
		if b.life.Err() == nil {
			b.troubled(l, err)
		}
		if err == nil {
			return s
		}
		if b.life.Err() != nil {
			return nil
		}
		if !said {
			b.log.Warn("cannot open a session with the ensemble; trying on", "err", err)
			said = true
		}
		if !b.pause(retryPause) {
			return nil
		}
	}
}

// pause waits; it reports false if the engine is closed.
func (b *Backend) pause(d time.Duration) bool { return sleep(b.life, d) }

// reasonSessionLost is the reason of the end of a tenure whose session was lost.
const reasonSessionLost = "zookeeper session lost"

// lost forgets the nodes of a session: the ensemble has deleted them, or will. It returns the places of
// the polling waiters among them.
func (b *Backend) lost(l *lane, s *session) (polling []place) {
	var events []simba.Event
	b.mu.Lock()
	for name, m := range b.mutexes {
		for _, n := range m.nodes {
			if n.s != s {
				continue
			}
			if n.kind == kindOwner && !n.foreign {
				events = append(events, simba.Event{
					Kind: simba.EventExpired, Mutex: name, Owner: n.contender, Token: n.token, Reason: reasonSessionLost,
				})
			}
			if n.kind == kindPolling && !n.foreign {
				polling = append(polling, n.place())
			}
			b.dropLocked(n)
		}
	}
	maps.DeleteFunc(b.ghosts, func(p place, _ map[guid]int32) bool { return b.lane(p.mutex) == l })
	b.mu.Unlock()
	if b.life.Err() != nil {
		return nil
	}
	s.mu.Lock()
	cause := s.cause
	s.mu.Unlock()
	b.log.Warn("the session with the ensemble is lost, and with it every lease that this server kept",
		"leases", len(events), "err", cause)
	b.counters.expired.Add(int64(b.eventLog.Announce(events...)))
	return polling
}

// recall publishes a notice to polling waiters that lost their places with a session, so that those who
// listen ask again. No other notice would come.
func (b *Backend) recall(places []place) {
	for _, p := range places {
		if b.nodeAt(p) == nil { // it has not asked since
			b.notices.Publish(simba.ContenderChannel(p.mutex, p.contender), simba.ReleasedNotice(b.lastOwner(p)))
		}
	}
}

// rejoinAll has all who wait in a lane take new places, after its session was lost.
func (b *Backend) rejoinAll(l *lane) {
	for _, mutex := range b.waiters.Mutexes() {
		if b.lane(mutex) == l {
			b.rejoin(mutex)
		}
	}
}

// rejoin has those who wait for a mutex take places if they have none.
func (b *Backend) rejoin(mutex string) {
	b.background(func() {
		for _, t := range b.waiters.Waiting(mutex) {
			if !b.rejoinOne(t) {
				return
			}
		}
	})
}

func (b *Backend) rejoinOne(t *proxy.Ticket) bool {
	r := t.Request
	for b.waiters.Find(r.Mutex, r.Contender) == t {
		err := b.tryRejoin(t)
		if err == nil {
			return true
		}
		b.failWaits(r.Mutex, err)
		if !b.pause(retryPause) {
			return false
		}
	}
	return true
}

// tryRejoin takes a new place for a ticket. The request itself may be doing so just now: then that is waited for, and
// nothing is acquired for who has been told by then.
func (b *Backend) tryRejoin(t *proxy.Ticket) error {
	r := t.Request
	p := place{r.Mutex, r.Contender}
	ctx, cancel := context.WithTimeout(b.life, b.options.Timeout)
	defer cancel()
	open, err := b.hold(ctx, p)
	if err != nil {
		return err
	}
	defer open()
	if b.waiters.Find(r.Mutex, r.Contender) != t {
		return nil
	}
	out, err := b.acquireHeld(ctx, r, t)
	if err != nil || out.Status == simba.StatusWaiting {
		return err
	}
	if !b.waiters.Grant(r.Mutex, r.Contender, proxy.Grant{Token: out.Token, Since: time.Now()}) {
		b.passOnSoon(p, out.Token) // who waited is gone
	}
	return nil
}
