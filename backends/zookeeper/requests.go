package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// effect is what a request does: only a write passes the ensemble's leader.
type effect bool

const (
	reads  effect = false
	writes effect = true
)

// do makes a request by the deadline of ctx. If certain(err) is false, it may have
// been done or not.
func do[T any](ctx context.Context, s *session, e effect, request func(*zk.Conn) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var none T
	if err := s.await(ctx); err != nil {
		return none, err
	}
	if !s.enter() {
		return none, errSessionOver
	}
	start := time.Now()
	ch := make(chan answer, 1)
	go func() {
		defer s.calls.Done()
		v, err := request(s.conn)
		ch <- answer{v, err}
	}()
	select {
	case a := <-ch:
		if e == writes && (a.err == nil || certain(a.err)) {
			s.confirm(start)
		}
		if !s.alive() { // it may come from the library's next session
			return none, errSessionOver
		}
		return a.value, a.err
	case <-s.over:
		return none, errSessionOver
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			s.cutIfSilent(start)
		}
		return none, errNoAnswer
	}
}

// certain reports whether a request failed by the ensemble's own decision, so that it
// is known not to have been done.
func certain(err error) bool {
	for _, known := range [...]error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNoAuth, zk.ErrNotEmpty, zk.ErrInvalidACL,
		zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments, zk.ErrAPIError, zk.ErrInvalidPath, zk.ErrInvalidFlags,
		errCutOff, errNoChroot,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

// node is a node's data and what the ensemble knows of it.
type znode struct {
	data []byte
	stat zk.Stat
}

func (s *session) get(ctx context.Context, path string) (znode, error) {
	return do(ctx, s, reads, func(c *zk.Conn) (znode, error) {
		data, stat, err := c.Get(path)
		if err != nil {
			return znode{}, err
		}
		return znode{data, *stat}, nil
	})
}

// getAndWatch is get, and session.touch is told of the next change of the node.
func (s *session) getAndWatch(ctx context.Context, path string) (znode, error) {
	return do(ctx, s, reads, func(c *zk.Conn) (znode, error) {
		data, stat, _, err := c.GetW(path)
		if err != nil {
			return znode{}, err
		}
		return znode{data, *stat}, nil
	})
}

// children returns the sorted names of a mutex' nodes, none if it has no node itself.
func (s *session) children(ctx context.Context, mutex string) ([]string, error) {
	names, err := s.list(ctx, s.mutex(mutex))
	sortChildren(names)
	return names, err
}

// childrenAt is children and the zxid of the last change of the list.
func (s *session) childrenAt(ctx context.Context, mutex string) ([]string, int64, error) {
	path := s.mutex(mutex)
	type listing struct {
		names []string
		pzxid int64
	}
	l, err := do(ctx, s, reads, func(c *zk.Conn) (listing, error) {
		names, stat, err := c.Children(path)
		if err != nil {
			return listing{}, err
		}
		return listing{names, stat.Pzxid}, nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, 0, nil
	}
	sortChildren(l.names)
	return l.names, l.pzxid, err
}

// list returns the names of a node's children, none if there is no such node.
func (s *session) list(ctx context.Context, path string) ([]string, error) {
	names, err := do(ctx, s, reads, func(c *zk.Conn) ([]string, error) {
		names, _, err := c.Children(path)
		return names, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// remove deletes a node whatever it is.
func (s *session) remove(ctx context.Context, path string) error {
	_, err := do(ctx, s, writes, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) })
	return err
}

// sync has our server of the ensemble catch up with the leader, so that the next read
// sees everything that anybody was told before.
func (s *session) sync(ctx context.Context, path string) error {
	_, err := do(ctx, s, reads, func(c *zk.Conn) (string, error) { return c.Sync(path) })
	return err
}

// watched is a listing and the channel that tells when it changes.
type watchedList struct {
	names   []string
	pzxid   int64 // of the last change of the list
	exists  bool
	changed <-chan zk.Event // nil if there is no node, and its making is not waited for
}

// watch lists the children of a node and watches them; or, if there is none, waits for
// it to be made if that is wanted.
func (s *session) watch(ctx context.Context, path string, made bool) (watchedList, error) {
	return do(ctx, s, reads, func(c *zk.Conn) (watchedList, error) {
		for {
			names, stat, changed, err := c.ChildrenW(path)
			if err == nil {
				return watchedList{names, stat.Pzxid, true, changed}, nil
			}
			if !errors.Is(err, zk.ErrNoNode) {
				return watchedList{}, err
			}
			if !made {
				return watchedList{}, nil
			}
			exists, _, changed, err := c.ExistsW(path)
			if err != nil || !exists {
				return watchedList{nil, 0, false, changed}, err
			}
		}
	})
}

// multi does all operations or none.
func (s *session) multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return do(ctx, s, writes, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
}

// ensure makes the nodes that a mutex' nodes are in, when one is missing.
func (s *session) ensure(ctx context.Context, mutex string) error {
	err := s.makeContainer(ctx, s.mutex(mutex))
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.inChroot(s.makeContainer(ctx, s.mutexes())); err == nil || errors.Is(err, zk.ErrNodeExists) {
			err = s.makeContainer(ctx, s.mutex(mutex))
		}
	}
	if errors.Is(err, zk.ErrNodeExists) { // so it was another that was missing
		return s.ensureLeases(ctx)
	}
	return err
}

func (s *session) makeContainer(ctx context.Context, path string) error {
	_, err := do(ctx, s, writes, func(c *zk.Conn) (string, error) {
		return c.CreateContainer(path, nil, zk.FlagContainer, s.acl)
	})
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return nil
}

func (s *session) ensureLeases(ctx context.Context) error {
	_, err := do(ctx, s, writes, func(c *zk.Conn) (string, error) { return c.Create(s.leases(), nil, 0, s.acl) })
	if err = s.inChroot(err); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return fmt.Errorf("create %s: %w", s.leases(), err)
	}
	return nil
}

// inChroot judges the making of a node right below the chroot.
func (s *session) inChroot(err error) error {
	if errors.Is(err, zk.ErrNoNode) && s.root != "" {
		return errNoChroot
	}
	return err
}

// register makes the session's marker.
func (s *session) register(ctx context.Context) error {
	for {
		_, err := do(ctx, s, writes, func(c *zk.Conn) (string, error) {
			return c.Create(s.marker(s.tag), nil, zk.FlagEphemeral, s.acl)
		})
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists): // an earlier attempt was late
			return nil
		case errors.Is(err, zk.ErrNoNode):
			if err := s.ensureLeases(ctx); err != nil {
				return err
			}
		case certain(err), !s.alive(), ctx.Err() != nil:
			return fmt.Errorf("create %s: %w", s.marker(s.tag), err)
		}
	}
}

// outlives reports whether the ensemble has ended the session with that tag, so that nothing that it asked for will be done any more.
// That is a write, so that the leader answers, and that this session lives is confirmed.
func (s *session) hasEnded(ctx context.Context, old tag) (bool, error) {
	_, err := s.multi(ctx, &zk.CheckVersionRequest{Path: s.marker(old), Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	return false, err
}

// beat shows the ensemble's leader that we are there, and returns its clock. It returns
// zk.ErrNoNode if the session's marker is missing.
func (s *session) heartbeat(ctx context.Context) (mtime int64, err error) {
	res, err := s.multi(ctx,
		&zk.CheckVersionRequest{Path: s.marker(s.tag), Version: -1},
		&zk.SetDataRequest{Path: s.leases(), Version: -1})
	if err != nil {
		return 0, err
	}
	return res[1].Stat.Mtime, nil
}
