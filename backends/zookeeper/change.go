package zookeeper

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// This file has the changes of latch nodes and lease nodes. The caller holds the mutex's lock. When a
// function returns, the outcome is known, unless the session is over. An answering is the answer
// that the same step gives to a request of another server; nil = none. If ahead is not "", a change
// is only made while that node exists, so that the entry is not the first.

// errChanged is returned when the queue is no longer as the request found it. The caller lists it
// again.
var errChanged = errors.New("the queue has changed meanwhile")

// step makes a change of nodes together with an answer. It returns errWithdrawn if the other server
// has withdrawn the request, and errChanged if the node ahead is gone. unsure means that the change
// may have been made although err is not nil.
func (s *session) step(ctx context.Context, ahead string, a *answering, ops ...any) (res []zk.MultiResponse, unsure bool, err error) {
	checked := len(ops)
	if ahead != "" {
		ops = append(ops, &zk.CheckVersionRequest{Path: ahead, Version: -1})
	}
	if a != nil {
		ops = append(ops, &zk.SetDataRequest{Path: a.path, Data: encode(a.answer), Version: 0})
	}
	res, unsure, err = s.change(ctx, ops...)
	failed := func(i int, err error) bool { return len(res) == len(ops) && errors.Is(res[i].Error, err) }
	switch last := len(ops) - 1; {
	case err == nil:
	case a != nil && unsure && failed(last, zk.ErrBadVersion):
		return nil, false, nil
	case a != nil && failed(last, zk.ErrNoNode):
		err = errWithdrawn
	case ahead != "" && failed(checked, zk.ErrNoNode):
		err = errChanged
	}
	return res, unsure, err
}

// create creates a latch node and its lease node in one step, and lists the nodes. The step also
// writes the mutex's node, so the answer has the number of latch nodes, the zxid and the leader's
// clock. create gives the lock up meanwhile, so names may be older than the lock. child is "" if
// there is no node. The caller decides what the entry becomes, and sets its child.
func (b *Backend) create(ctx context.Context, s *session, m *mutex, r simba.AcquireRequest, k kind) (n *entry, child string, names []string, err error) {
	n = &entry{
		s: s, contender: r.Contender, guid: newGUID(r.Contender, s.tag),
		state: state{kind: k, windows: b.windowsOf(r), since: time.Now()},
	}
	n.acquiredAt = b.clock.Latest(n.since)
	m.add(n)
	data := encode(n.record(m.name))
	var stat *zk.Stat
	m.apart(func() {
		if child, stat, err = b.tryCreate(ctx, s, m.name, n, data); err == nil {
			if names = []string{child}; stat.NumChildren != 1 {
				names, err = s.children(s.ctx, m.name)
			}
		}
	})
	switch {
	case !m.has(n):
		return n, "", nil, errSessionOver
	case child == "":
		m.drop(n)
		return n, "", nil, err
	}
	n.token, n.made = uint64(stat.Czxid), time.Now()
	return n, child, names, err
}

// tryCreate returns the name and the Stat of the new latch node, with the number of latch nodes if
// that is known.
func (b *Backend) tryCreate(ctx context.Context, s *session, mutex string, n *entry, data []byte) (child string, stat *zk.Stat, err error) {
	for {
		start := time.Now()
		res, unsure, err := s.change(ctx,
			&zk.CreateRequest{Path: s.newLatch(mutex, n.guid), Data: []byte(n.contender), Acl: s.acl, Flags: zk.FlagEphemeralSequential},
			&zk.CreateRequest{Path: s.lease(n.guid), Data: data, Acl: s.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: s.mutex(mutex), Version: -1})
		switch {
		case err == nil:
			stat = res[2].Stat
			b.clock.Learn(stat.Mtime, start, time.Now())
			return res[0].String[len(s.mutex(mutex))+1:], &zk.Stat{Czxid: stat.Mzxid, NumChildren: stat.NumChildren}, nil
		case unsure && !errors.Is(err, errSessionOver): // an earlier attempt may have created the nodes
			return s.findCreated(mutex, n.guid)
		case errors.Is(err, zk.ErrNoNode):
			if err = s.ensure(ctx, mutex); err == nil {
				continue
			}
		}
		return "", nil, err
	}
}

// findCreated looks for a latch node whose creation had no answer.
func (s *session) findCreated(mutex string, g guid) (child string, stat *zk.Stat, err error) {
	for s.alive() {
		names, err := s.children(s.ctx, mutex)
		i := slices.IndexFunc(names, func(c string) bool { return guidOf(c) == g })
		if err == nil && i < 0 {
			return "", nil, errChanged // not created, or deleted by hand
		}
		if err == nil {
			if z, err := s.get(s.ctx, s.latch(mutex, names[i])); err == nil {
				return names[i], z.stat, nil
			}
		}
		proxy.Sleep(s.ctx, retryPause, nil)
	}
	return "", nil, errSessionOver
}

// write changes an entry and its lease node by f. If f sets since, an owner's windows begin then, even
// if the ensemble executes the write later.
func (b *Backend) write(ctx context.Context, m *mutex, n *entry, a *answering, f func(*state)) error {
	next := *n
	f(&next.state)
	if !next.since.Equal(n.since) {
		next.acquiredAt = b.clock.Latest(next.since)
	}
	data := encode(next.record(m.name))
	_, unsure, err := n.s.step(ctx, n.ahead, a,
		&zk.CheckVersionRequest{Path: n.s.latch(m.name, n.child), Version: -1},
		&zk.SetDataRequest{Path: n.s.lease(n.guid), Data: data, Version: -1})
	if unsure && among(err, errWithdrawn, errChanged) {
		// An earlier attempt may have been executed. The other server may have read its answer and
		// deleted the request, or the node ahead is gone since.
		if z, failed := n.s.get(n.s.ctx, n.s.lease(n.guid)); failed == nil && bytes.Equal(z.data, data) {
			err = nil
		}
	}
	switch {
	case err == nil:
		n.state = next.state
	case errors.Is(err, zk.ErrNoNode):
		b.forgetDeleted(m, n)
		err = errChanged
	}
	return err
}

// renew makes an entry the owner's, and begins both windows. The entry must be that of the owner, or
// its node must be the first.
func (b *Backend) renew(ctx context.Context, m *mutex, n *entry, w windows, a *answering) error {
	start, renewed := time.Now(), n.kind == kindOwner
	err := b.write(ctx, m, n, a, func(s *state) { *s = state{kind: kindOwner, windows: w, since: start, renewed: true} })
	switch {
	case err != nil:
	case renewed:
		b.Counts.Renewed.Add(1)
	default:
		b.record(m, n.event(simba.EventAcquired, ""))
	}
	return err
}

// demote makes an entry that of a polling waiter.
func (b *Backend) demote(ctx context.Context, m *mutex, n *entry) error {
	return b.write(ctx, m, n, nil, func(s *state) {
		*s = state{kind: kindPolling, windows: s.windows, expiresAt: time.Now().Add(b.QueueGrace())}
	})
}

// remove deletes an entry's nodes and records the event, unless its Kind is 0. If the next waiter is
// blocked here, and certainly the first now, remove grants it the mutex. remove returns errChanged if a person
// had deleted the nodes.
func (b *Backend) remove(ctx context.Context, m *mutex, n *entry, e simba.Event, a *answering) error {
	ops := deletes(n.s.latch(m.name, n.child), n.s.lease(n.guid))
	if m.watcher != nil { // to learn whether the mutex is free now
		ops = append(ops, &zk.SetDataRequest{Path: n.s.mutex(m.name), Version: -1})
	}
	res, unsure, err := n.s.step(ctx, n.ahead, a, ops...)
	switch {
	case errors.Is(err, zk.ErrNoNode) && !unsure:
		b.forgetDeleted(m, n)
		return errChanged
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return err
	}
	m.drop(n)
	if e.Kind != 0 {
		b.record(m, e)
	}
	if err == nil && len(res) > 2 && res[2].Stat != nil && res[2].Stat.NumChildren == 0 {
		b.announceFree(m)
	}
	if next := m.nextHere(); next != nil && next.kind == kindBlocked {
		b.retryLater(m, next, b.grant(m, next, reasonHandoff))
	}
	return nil
}

func deletes(latch, lease string) []any {
	return []any{&zk.DeleteRequest{Path: latch, Version: -1}, &zk.DeleteRequest{Path: lease, Version: -1}}
}

// forgetDeleted forgets an entry of which the ensemble lacks a node, because a person has deleted it.
// It deletes the other node. A waiter queues again.
func (b *Backend) forgetDeleted(m *mutex, n *entry) {
	m.drop(n)
	for _, o := range m.entries {
		o.onlyOwnAhead = false // the latch node may still exist
	}
	if n.kind == kindOwner && !n.doomed {
		b.record(m, n.event(simba.EventReleased, "node deleted"))
	}
	b.Go(func() {
		for _, op := range deletes(n.s.latch(m.name, n.child), n.s.lease(n.guid)) {
			_, _, _ = n.s.change(n.s.ctx, op)
		}
	})
	b.rejoin(m.name)
}
