package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// effect says whether a request reads or writes. Only writes reach the ensemble's leader.
type effect bool

const (
	reads  effect = false
	writes effect = true
)

// do makes a request and waits for the answer until ctx ends. If it fails, the ensemble may still
// have executed the request, unless certain(err).
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
		ch <- answer{v, named(err)}
	}()
	select {
	case a := <-ch:
		if e == writes && (a.err == nil || certain(a.err)) {
			s.confirm(start)
		}
		if !s.alive() { // the answer may come from the library's next session
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

// certain reports whether an error shows that the ensemble has not executed the request.
func certain(err error) bool {
	for _, known := range [...]error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNoAuth, zk.ErrNotEmpty, zk.ErrInvalidACL,
		zk.ErrNoChildrenForEphemerals, zk.ErrBadArguments, zk.ErrAPIError, zk.ErrInvalidPath, zk.ErrInvalidFlags,
		errCutOff, errNoChroot, errQuotaExceeded, errUnconfirmed,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

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

// getAndWatch is get. It also sets a watch, which calls session.leaseChanged.
func (s *session) getAndWatch(ctx context.Context, path string) (znode, error) {
	return do(ctx, s, reads, func(c *zk.Conn) (znode, error) {
		data, stat, _, err := c.GetW(path)
		if err != nil {
			return znode{}, err
		}
		return znode{data, *stat}, nil
	})
}

// children returns the sorted latch nodes of a mutex, none if the mutex's node does not exist.
func (s *session) children(ctx context.Context, mutex string) ([]string, error) {
	names, err := s.list(ctx, s.mutex(mutex))
	sortChildren(names)
	return names, err
}

// childrenAt is children. It also returns the zxid of the last creation or deletion of a child.
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

// list returns the names of a node's children, none if the node does not exist.
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

func (s *session) remove(ctx context.Context, path string) error {
	_, err := do(ctx, s, writes, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) })
	return err
}

// sync lets the connected server of the ensemble catch up with the leader. The next read is then at
// least as new as every answer given before.
func (s *session) sync(ctx context.Context, path string) error {
	_, err := do(ctx, s, reads, func(c *zk.Conn) (string, error) { return c.Sync(path) })
	return err
}

type watchedList struct {
	names   []string
	pzxid   int64 // zxid of the last creation or deletion of a child
	exists  bool
	changed <-chan zk.Event // nil if the node does not exist and its creation is not watched
}

// watch lists the children of a node and watches them. If the node does not exist and creation is
// true, it watches for its creation.
func (s *session) watch(ctx context.Context, path string, creation bool) (watchedList, error) {
	return do(ctx, s, reads, func(c *zk.Conn) (watchedList, error) {
		for {
			names, stat, changed, err := c.ChildrenW(path)
			if err == nil {
				return watchedList{names, stat.Pzxid, true, changed}, nil
			}
			if !errors.Is(err, zk.ErrNoNode) {
				return watchedList{}, err
			}
			if !creation {
				return watchedList{}, nil
			}
			exists, _, changed, err := c.ExistsW(path)
			if err != nil || !exists {
				return watchedList{nil, 0, false, changed}, err
			}
		}
	})
}

func (s *session) multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return do(ctx, s, writes, func(c *zk.Conn) ([]zk.MultiResponse, error) { return c.Multi(ops...) })
}

// ensure creates the missing parents of the nodes of a mutex.
func (s *session) ensure(ctx context.Context, mutex string) error {
	err := s.makeContainer(ctx, s.mutex(mutex))
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.inChroot(s.makeContainer(ctx, s.mutexes())); err == nil || errors.Is(err, zk.ErrNodeExists) {
			err = s.makeContainer(ctx, s.mutex(mutex))
		}
	}
	if errors.Is(err, zk.ErrNodeExists) { // so the parent of the lease nodes is missing
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

// inChroot takes the error of creating a node directly below the chroot. It returns errNoChroot if
// the chroot is missing, else err.
func (s *session) inChroot(err error) error {
	if errors.Is(err, zk.ErrNoNode) && s.root != "" {
		return errNoChroot
	}
	return err
}

func (s *session) register(ctx context.Context) error {
	for {
		_, err := do(ctx, s, writes, func(c *zk.Conn) (string, error) {
			return c.Create(s.marker(s.tag), s.markerData(), zk.FlagEphemeral, s.acl)
		})
		switch {
		case err == nil, errors.Is(err, zk.ErrNodeExists): // an earlier attempt arrived late
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

// hasEnded reports whether the ensemble has ended the session with that tag. Then it executes no
// more requests of that session. hasEnded makes a write, so that the leader answers. The answer
// also confirms s.
func (s *session) hasEnded(ctx context.Context, old tag) (bool, error) {
	_, err := s.multi(ctx, &zk.CheckVersionRequest{Path: s.marker(old), Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	return false, err
}
