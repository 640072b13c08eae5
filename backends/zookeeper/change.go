package zookeeper

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// This file has the changes of latch nodes and lease nodes. The caller holds the mutex's lock. When a
// function returns, the outcome is known, unless the session is over. An answering is the answer
// that the same step gives to a request of another server; nil = none. If ahead is not "", a change
// is only made while that node exists, so that the entry is not the first.

// errChanged is returned when the queue is no longer as the request found it. The caller lists it
// again.
var errChanged = errors.New("the queue has changed meanwhile")

var errNumbers = errors.New("the mutex has had too many nodes; ZooKeeper counts anew some time after the last contender has left")

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

// create creates a latch node and its lease node in one step, and lists the nodes. It gives the lock up
// meanwhile, so names may be older than the lock. child is "" if there is no node. The caller decides
// what the entry becomes, and sets its child.
func (st *store) create(ctx context.Context, s *session, m *mutex, w proxy.Lease) (n *entry, child string, names []string, err error) {
	n = &entry{
		s: s, contender: w.Owner, guid: newGUID(w.Owner, s.tag),
		state: st.ownerOf(w),
	}
	if w.Queueing == proxy.Blocks {
		n.kind = kindBlocked
	}
	m.entries[n.contender], m.guids[n.guid] = n, n
	data := encode(n.record(m.name))
	m.apart(func() { child, names, err = st.tryCreate(ctx, s, m.name, n, data) })
	switch {
	case !m.has(n):
		return n, "", nil, errSessionOver
	case child == "":
		m.drop(n)
	}
	n.made = time.Now()
	return n, child, names, err
}

// tryCreate also writes the mutex's node, so the answer has the number of latch nodes, the zxid and the
// leader's clock.
func (st *store) tryCreate(ctx context.Context, s *session, mutex string, n *entry, data []byte) (child string, names []string, err error) {
	for {
		start := time.Now()
		res, unsure, err := s.change(ctx,
			&zk.CreateRequest{Path: s.newLatch(mutex, n.guid), Data: []byte(n.contender), Acl: s.acl, Flags: zk.FlagEphemeralSequential},
			&zk.CreateRequest{Path: s.lease(n.guid), Data: data, Acl: s.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: s.mutex(mutex), Version: -1})
		switch {
		case err == nil:
			stat := res[2].Stat
			st.clock.Learn(stat.Mtime, start, time.Now())
			child, n.token = res[0].String[len(s.mutex(mutex))+1:], uint64(stat.Mzxid)
			if stat.NumChildren == 1 && sortKey(child) <= lastNumber {
				return child, []string{child}, nil
			}
			if names, err = s.children(s.ctx, mutex); sortKey(child) > lastNumber {
				err = errNumbers
			}
			return child, names, err
		case unsure && !errors.Is(err, errSessionOver): // an earlier attempt may have created the nodes
			return s.findCreated(mutex, n)
		case !errors.Is(err, zk.ErrNoNode):
			return "", nil, err
		}
		if err = s.ensure(ctx, mutex); err != nil {
			return "", nil, err
		}
	}
}

// findCreated looks for a latch node whose creation had no answer.
func (s *session) findCreated(mutex string, n *entry) (child string, names []string, err error) {
	for ; s.alive(); proxy.Sleep(s.ctx, retryPause, nil) {
		names, err = s.children(s.ctx, mutex)
		i := slices.IndexFunc(names, func(c string) bool { return guidOf(c) == n.guid })
		if err == nil && i < 0 {
			return "", nil, errChanged // not created, or deleted by hand
		}
		if z, failed := s.get(s.ctx, s.lease(n.guid)); err == nil && failed == nil {
			n.token = uint64(z.stat.Czxid)
			return names[i], names, nil
		}
	}
	return "", nil, errSessionOver
}

// write changes an entry and its lease node by f.
func (st *store) write(ctx context.Context, m *mutex, n *entry, a *answering, f func(*state)) error {
	next := *n
	f(&next.state)
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
		st.forgetDeleted(m, n)
		err = errChanged
	}
	return err
}

// ownerOf returns the state of an owner. Both windows begin at w.Since, even if the ensemble executes
// the write later. w.Mark is 0 unless the lease stays the one that was acquired before.
func (st *store) ownerOf(w proxy.Lease) state {
	acquired := cmp.Or(w.Mark, w.Since.UnixNano())
	return state{kind: kindOwner, ttl: w.TTL, transition: w.Transition, since: w.Since, acquired: acquired, acquiredAt: st.clock.Latest(w.Since)}
}

// renew makes an entry the owner's. The entry must be that of the owner, or its node must be the first.
// For another server, it refuses a lease for which the session cannot vouch.
func (st *store) renew(ctx context.Context, m *mutex, n *entry, w proxy.Lease, a *answering) error {
	if a != nil && w.TTL+w.Transition > n.s.negotiated()/2 {
		a.answer = answer{Status: statusTooLong}
		_, _, err := n.s.step(ctx, "", a)
		return err
	}
	err := st.write(ctx, m, n, a, func(s *state) { *s = st.ownerOf(w) })
	if err == nil {
		st.arm(m, n, nil)
	}
	return err
}

// demote makes an entry that of a polling waiter, while a node ahead exists.
func (st *store) demote(ctx context.Context, m *mutex, n *entry, ahead string) error {
	n.ahead = n.s.latch(m.name, ahead)
	defer func() { n.ahead = "" }()
	return st.write(ctx, m, n, nil, func(s *state) { s.kind = kindPolling })
}

// remove deletes an entry's nodes. It returns errChanged if a person had deleted them.
func (st *store) remove(ctx context.Context, m *mutex, n *entry, a *answering) error {
	ops := deletes(n.s.latch(m.name, n.child), n.s.lease(n.guid))
	st.mu.Lock()
	if st.watched[m.name] != nil { // to learn whether the mutex is free now
		ops = append(ops, &zk.SetDataRequest{Path: n.s.mutex(m.name), Version: -1})
	}
	st.mu.Unlock()
	res, unsure, err := n.s.step(ctx, n.ahead, a, ops...)
	switch {
	case errors.Is(err, zk.ErrNoNode) && !unsure:
		st.forgetDeleted(m, n)
		return errChanged
	case err != nil && !errors.Is(err, zk.ErrNoNode):
		return err
	}
	m.drop(n)
	m.left = 1
	if err == nil && len(res) > 2 && res[2].Stat != nil {
		m.left = res[2].Stat.NumChildren
	}
	return nil
}

// expire ends a tenure whose lease is over.
func (st *store) expire(ctx context.Context, m *mutex, n *entry) error {
	err := st.remove(ctx, m, n, nil)
	if err == nil {
		st.lost(m, n, "")
	}
	return err
}

func deletes(latch, lease string) []any {
	return []any{&zk.DeleteRequest{Path: latch, Version: -1}, &zk.DeleteRequest{Path: lease, Version: -1}}
}

// forgetDeleted forgets an entry of which the ensemble lacks a node, because a person has deleted it.
// It deletes the other node. A waiter queues again.
func (st *store) forgetDeleted(m *mutex, n *entry) {
	m.drop(n)
	st.Go(func() {
		for _, op := range deletes(n.s.latch(m.name, n.child), n.s.lease(n.guid)) {
			_, _, _ = n.s.change(n.s.ctx, op)
		}
	})
	st.lost(m, n, "node deleted")
}

// lost tells the engine that an entry is gone.
func (st *store) lost(m *mutex, n *entry, reason string) {
	token := n.token
	if n.kind != kindOwner || !n.isDecided() {
		token = 0
	}
	st.hooks.Lost(m.name, n.contender, token, reason)
}
