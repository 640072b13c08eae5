package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// effect says whether a request reads or writes. Only writes reach the ensemble's leader.
type effect bool

const (
	reads  effect = false
	writes effect = true
)

// brokenPause is the pause before a request is repeated whose connection broke.
const brokenPause = 5 * time.Millisecond

// do makes a request and waits for the answer, however long that takes. But it sends nothing once
// ctx has ended. A read is repeated if the connection breaks. A write returns the error: then the
// ensemble may have executed it.
func (s *session) do(ctx context.Context, e effect, request func(*zk.Conn) error) error {
	for {
		if err := s.await(ctx); err != nil {
			return err
		}
		start := time.Now()
		err := named(request(s.conn))
		switch {
		case !s.alive(): // the answer may come from the library's next session
			return errSessionOver
		case broken(err) && e == reads:
			proxy.Sleep(ctx, brokenPause, nil)
			continue
		case e == writes && answered(err):
			s.confirm(start)
		}
		return err
	}
}

// codeError is an error for which the library has only a code.
type codeError string

const (
	errConnectionLoss   codeError = "ConnectionLoss (-4)"
	errUnimplemented    codeError = "Unimplemented (-6)"
	errOperationTimeout codeError = "OperationTimeout (-7)"
	errRequestTimeout   codeError = "RequestTimeout (-122)"
	errQuotaExceeded    codeError = "QuotaExceeded (-125)"
	errThrottled        codeError = "ThrottledOp (-127)"
)

func (e codeError) Error() string { return string(e) }

// named replaces an error of the library that has only a code.
func named(err error) error {
	if err == nil {
		return nil
	}
	_, code, _ := strings.Cut(err.Error(), "unknown error: ")
	for _, e := range []codeError{errConnectionLoss, errUnimplemented, errOperationTimeout, errRequestTimeout, errQuotaExceeded, errThrottled} {
		if strings.HasSuffix(string(e), " ("+code+")") {
			return e
		}
	}
	return err
}

func among(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(known error) bool { return errors.Is(err, known) })
}

// broken reports whether a request may be repeated, which may or may not have been executed.
func broken(err error) bool {
	return among(err, zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrSessionMoved, errConnectionLoss, errOperationTimeout, errRequestTimeout, errThrottled)
}

// answered reports whether the result of a write is an answer of the ensemble's leader.
func answered(err error) bool {
	return err == nil || among(err, zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNoAuth, errQuotaExceeded)
}

// change is a multi whose outcome is known when it returns, unless the session ends. It may have
// been executed by an earlier attempt if unsure is true and an operation has failed. ZooKeeper
// executes the requests of a session in order, even if they were sent by different connections. So
// an earlier attempt is never executed after a later one.
func (s *session) change(ctx context.Context, ops ...any) (res []zk.MultiResponse, unsure bool, err error) {
	for {
		res, err = s.multi(ctx, ops...)
		if !broken(err) {
			return res, unsure, err
		}
		unsure, ctx = true, s.ctx
		proxy.Sleep(ctx, brokenPause, nil)
	}
}

func (s *session) multi(ctx context.Context, ops ...any) (res []zk.MultiResponse, err error) {
	err = s.do(ctx, writes, func(c *zk.Conn) (err error) {
		res, err = c.Multi(ops...)
		return err
	})
	return res, err
}

type znode struct {
	data []byte
	stat *zk.Stat
}

func (s *session) get(ctx context.Context, path string) (z znode, err error) {
	err = s.do(ctx, reads, func(c *zk.Conn) (err error) {
		z.data, z.stat, err = c.Get(path)
		return err
	})
	return z, err
}

// children returns the sorted latch nodes of a mutex, none if the mutex's node does not exist.
func (s *session) children(ctx context.Context, mutex string) ([]string, error) {
	names, err := s.list(ctx, s.mutex(mutex))
	sortChildren(names)
	return names, err
}

// list returns the names of a node's children, none if the node does not exist.
func (s *session) list(ctx context.Context, path string) (names []string, err error) {
	err = s.do(ctx, reads, func(c *zk.Conn) (err error) {
		names, _, err = c.Children(path)
		return err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// sync lets the connected server of the ensemble catch up with the leader. The next read is then at
// least as new as every answer given before.
func (s *session) sync(ctx context.Context) error {
	return s.do(ctx, reads, func(c *zk.Conn) error {
		_, err := c.Sync(s.mutexes())
		return err
	})
}

// barrier is like sync, but is certain even if the leader has lost its majority, since it is a
// write.
func (s *session) barrier(ctx context.Context) error {
	_, err := s.hasEnded(ctx, s.tag) // a marker deleted by hand is made again by the next heartbeat
	return err
}

// watch lists the children of a node and watches them. If the node does not exist and creation is
// true, it watches for its creation. Otherwise changed is nil, and the node does not exist at any
// server of the ensemble.
func (s *session) watch(ctx context.Context, path string, creation bool) (names []string, changed <-chan zk.Event, err error) {
	err = s.do(ctx, reads, func(c *zk.Conn) (err error) {
		for exists, synced := true, false; exists; {
			names, _, changed, err = c.ChildrenW(path)
			switch {
			case !errors.Is(err, zk.ErrNoNode) || synced:
				return err
			case creation:
				exists, _, changed, err = c.ExistsW(path)
			default:
				_, err = c.Sync(path)
				synced = true
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil, nil
	}
	return names, changed, err
}

// ensure creates the missing parents of the nodes of a mutex.
func (s *session) ensure(ctx context.Context, mutex string) error {
	exists, err := s.make(ctx, s.mutex(mutex), nil, zk.FlagContainer)
	if exists { // so the parent of the lease nodes is missing
		_, err = s.make(ctx, s.leases(), nil, zk.FlagContainer)
	}
	return err
}

// make creates a node, and its missing parents as containers. It reports whether the node existed.
func (s *session) make(ctx context.Context, path string, data []byte, flag int32) (exists bool, err error) {
	for {
		err = s.do(ctx, writes, func(c *zk.Conn) error {
			create := c.Create
			if flag == zk.FlagContainer {
				s.containers.RLock()
				defer s.containers.RUnlock()
				create = c.CreateContainer
			}
			_, err := create(path, data, flag, s.acl)
			return err
		})
		switch {
		case errors.Is(err, zk.ErrNodeExists):
			return true, nil
		case errors.Is(err, zk.ErrNoNode):
			parent := path[:strings.LastIndexByte(path, '/')]
			if parent == s.root {
				return false, errNoChroot
			}
			if _, err = s.make(ctx, parent, nil, zk.FlagContainer); err != nil {
				return false, err
			}
		case err == nil:
			return false, nil
		case !broken(err):
			return false, fmt.Errorf("create %s: %w", path, err)
		}
	}
}

// The data of a session's marker.
var (
	markerOpen     = []byte("open")     // the server executes requests of other servers
	markerStopping = []byte("stopping") // it changes nothing more, and others may delete its nodes
)

// hasEnded reports whether the ensemble has ended the session with that tag. Then it executes no
// more requests of that session. hasEnded makes a write, so that the leader answers. The answer
// also confirms s.
func (s *session) hasEnded(ctx context.Context, old tag) (bool, error) {
	_, _, err := s.change(ctx, &zk.CheckVersionRequest{Path: s.marker(old), Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	return false, err
}
