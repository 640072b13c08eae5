package zookeeper

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// This file has the requests by which a server asks the creator of an entry to change it.

// op is what a request asks for.
type op string

const (
	// Renew the owner's lease, or make a first polling waiter the owner. Otherwise keep the queue entry
	// of a contender that polls, and end that of one that waits at the asking server.
	opAcquire op = "acquire"
	opListen  op = "listen" // the contender subscribes to its own channel at the asking server
	opGuard   op = "guard"
	opRelease op = "release"
	opBreak   op = "break"
)

// request is the data of a request node. It names an entry by its GUID, which no other entry ever
// has.
type request struct {
	Op         op     `json:"op"`
	GUID       guid   `json:"guid"`
	Mutex      string `json:"mutex"`
	Contender  string `json:"contender"`
	Token      uint64 `json:"token,omitempty"`
	TTL        int64  `json:"ttl,omitempty"`
	Transition int64  `json:"transition,omitempty"`
	Binding    string `json:"binding,omitempty"`
	Reason     string `json:"reason,omitempty"`
	Waits      bool   `json:"waits,omitempty"` // the contender is blocked at the asking server
	// Deadline is when the client of the asking server gets TRYAGAIN, in Unix milliseconds on the
	// ensemble's clock. In an outage the asking server may withdraw the request only after that.
	Deadline int64 `json:"deadline"`
}

// answer is the data of a request node after the creator has acted.
type answer struct {
	Status string `json:"status"` // of a lease: the name of a simba.Status
	Token  uint64 `json:"token,omitempty"`
}

const (
	statusReleased = "released"
	statusNone     = "none"    // no tenure, or no entry
	statusTooLong  = "toolong" // the session of the creator cannot vouch for such a lease
)

// answering is a request of another server, and the answer that a step gives.
type answering struct {
	path   string
	answer answer
}

var (
	// errWithdrawn is returned when the asking server has withdrawn a request.
	errWithdrawn = errors.New("the request was withdrawn")
	// errBusy is returned when too many requests to a server are open.
	errBusy = errors.New("the server that granted the lease has too many requests")
	// errStopping is returned when the creator of an entry is stopping.
	errStopping = errors.New("the server that granted the lease or queued the contender is stopping")
	// errTooLong is returned for a lease that is longer than the creator's LongestLease.
	errTooLong = errors.New("the lease is longer than half of the session timeout of the server that granted it")
	// errSilent is returned when the creator of an entry does not answer.
	errSilent = errors.New("the server that granted the lease or queued the contender does not answer; it may be dead")
)

// maxRequests bounds the open requests to a server.
const maxRequests = 1000

// ask makes a request to the creator of an entry, and waits for the answer. It gives the lock up
// meanwhile. It returns errChanged if the entry does not exist any more. After another error, the
// request is not executed later, unless this server is cut off from the ensemble.
func (b *Backend) ask(ctx context.Context, s *session, m *mutex, g guid, q request) (a answer, err error) {
	if g.tagged(s.tag) {
		return a, errChanged
	}
	q.GUID, q.Mutex = g, m.name
	m.apart(func() { a, err = b.tryAsk(ctx, s, q) })
	return a, err
}

func (b *Backend) tryAsk(ctx context.Context, s *session, q request) (a answer, err error) {
	marker, inbox := s.marker(q.GUID.tag()), s.inbox(q.GUID.tag())
	path := inbox + "/" + strings.ReplaceAll(string(newTag()+newTag()), "-", "")
	if end, ok := ctx.Deadline(); ok {
		q.Deadline = b.clock.Latest(end)
	}
	for {
		m, err := s.get(ctx, marker)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return a, errChanged // the session is over, and its nodes are gone
		case err != nil:
			return a, err
		case bytes.Equal(m.data, markerStopping):
			return b.actForStopping(ctx, s, q, m.stat.Version)
		}
		res, unsure, err := s.change(ctx,
			&zk.CheckVersionRequest{Path: marker, Version: m.stat.Version},
			&zk.CreateRequest{Path: path, Data: encode(q), Acl: s.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: inbox, Version: -1})
		switch {
		case errors.Is(err, zk.ErrNoNode):
			if _, err = s.make(ctx, inbox, nil, zk.FlagContainer); err != nil {
				return a, err
			}
		case errors.Is(err, zk.ErrBadVersion): // a heartbeat came between
			if unsure { // or an earlier attempt was executed before it
				if _, err = s.get(s.ctx, path); err == nil {
					return b.await(ctx, s, path)
				}
			}
		case err == nil && res[2].Stat.NumChildren > maxRequests:
			withdrawn, cancel := context.WithCancel(ctx)
			cancel()
			if a, err = b.await(withdrawn, s, path); errors.Is(err, errSilent) {
				err = errBusy
			}
			return a, err
		case err == nil, unsure && errors.Is(err, zk.ErrNodeExists):
			return b.await(ctx, s, path)
		default:
			return a, err
		}
	}
}

// await waits for the answer to a request. When ctx ends, it withdraws the request.
func (b *Backend) await(ctx context.Context, s *session, path string) (a answer, err error) {
	defer b.forgetRequest(s, path)
	for {
		var now znode
		var changed <-chan zk.Event
		err := s.do(s.ctx, reads, func(c *zk.Conn) (err error) {
			now.data, now.stat, changed, err = c.GetW(path)
			return err
		})
		switch {
		case err != nil:
			return a, err
		case now.stat.Version > 0:
			if err = json.Unmarshal(now.data, &a); err == nil && a.Status == statusNone {
				err = errChanged
			} else if a.Status == statusTooLong {
				err = errTooLong
			}
			return a, err
		}
		select {
		case <-changed:
			continue
		case <-s.ctx.Done():
			return a, errSessionOver
		case <-ctx.Done():
		}
		_, unsure, err := s.change(s.ctx, &zk.DeleteRequest{Path: path, Version: 0})
		if !errors.Is(err, zk.ErrBadVersion) {
			if err == nil || unsure && errors.Is(err, zk.ErrNoNode) {
				err = errSilent
			}
			return a, err
		}
	}
}

// forgetRequest deletes a request node in the background.
func (b *Backend) forgetRequest(s *session, path string) {
	b.Go(func() { _, _, _ = s.change(s.ctx, &zk.DeleteRequest{Path: path, Version: -1}) })
}

// askAll makes a request to every creator of a node of the contender at another server. It reports
// whether one of them has ended a tenure.
func (b *Backend) askAll(ctx context.Context, s *session, m *mutex, q request) (released bool, err error) {
	var names []string
	m.apart(func() { names, err = b.fresh(ctx, s, m.name) })
	if err != nil {
		return false, err
	}
	mark := protected + contenderMark(q.Contender)
	for _, child := range names {
		if g := guidOf(child); strings.HasPrefix(child, mark) && !g.tagged(s.tag) {
			a, err := b.ask(ctx, s, m, g, q)
			if err != nil && !errors.Is(err, errChanged) {
				return released, err
			}
			released = released || a.Status == statusReleased
		}
	}
	return released, nil
}

// actForStopping executes a request whose creator has stopped, if it ends the entry. The check of the
// marker's version makes sure that the creator changes nothing more.
func (b *Backend) actForStopping(ctx context.Context, s *session, q request, version int32) (a answer, err error) {
	if q.Op != opRelease && q.Op != opBreak {
		return a, errStopping
	}
	names, err := s.children(ctx, q.Mutex)
	if err != nil {
		return a, err
	}
	for i, child := range names {
		if guidOf(child) != q.GUID {
			continue
		}
		n, err := b.readNode(ctx, s, q.Mutex, child)
		if err != nil || n == nil {
			return a, orChanged(err)
		}
		if owner := i == 0 && n.owned; q.Token != 0 && q.Token != n.token || q.Binding != "" || q.Op == opBreak && !owner {
			return answer{Status: statusNone}, nil
		} else if owner {
			a.Status = statusReleased
		}
		_, unsure, err := s.change(ctx,
			append(deletes(s.latch(q.Mutex, child), s.lease(q.GUID)), &zk.CheckVersionRequest{Path: s.marker(q.GUID.tag()), Version: version})...)
		switch {
		case err == nil && a.Status == statusReleased:
			kind := simba.EventReleased
			if q.Op == opBreak {
				kind = simba.EventBroken
			}
			b.recordEvent(simba.Event{Kind: kind, Mutex: q.Mutex, Owner: n.contender, Token: n.token, Reason: q.Reason})
		case errors.Is(err, zk.ErrNoNode) && unsure:
			err = errSilent // this request or another one has ended it
		case errors.Is(err, zk.ErrNoNode):
			err = errChanged
		}
		return a, err
	}
	return a, errChanged
}

// serveInbox executes the requests of other servers to a session, until the engine is closed.
func (b *Backend) serveInbox(l *slot) {
	known := make(map[string]bool)
	w := newWatcher(l, func(s *session) string { return s.inbox(s.tag) })
	w.act = func(s *session, names []string, _ time.Time) time.Duration {
		listed := make(map[string]bool)
		for _, name := range names {
			path := s.inbox(s.tag) + "/" + name
			if listed[path] = true; !known[path] {
				b.Go(func() { b.serveRequest(s, path) })
			}
		}
		known = listed
		return 0
	}
	b.follow(w)
}

// serveRequest executes a request and answers it.
func (b *Backend) serveRequest(s *session, path string) {
	err := errChanged
	for errors.Is(err, errChanged) && s.alive() && !b.Stopped() {
		if err = b.tryServe(s, path); err != nil {
			proxy.Sleep(b.Stopping, changedPause, nil)
		}
	}
	if lasting(err) {
		b.Log.Warn("cannot execute a request of another server", "err", err)
	}
}

func (b *Backend) tryServe(s *session, path string) error {
	z, err := s.get(s.ctx, path)
	if err != nil || z.stat.Version > 0 {
		return err
	}
	var q request
	a := &answering{path: path, answer: answer{Status: statusNone}}
	if json.Unmarshal(z.data, &q) == nil && (&record{Mutex: q.Mutex, Contender: q.Contender, Kind: kindOwner, TTL: q.TTL, Transition: q.Transition}).isValid() {
		if q.Deadline != 0 && b.storeNow() > q.Deadline {
			return nil // the asking server withdraws it
		}
		m := b.lock(q.Mutex)
		defer b.unlock(m)
		n, err := b.entryOf(s.ctx, m, q.Contender)
		if err != nil {
			return err
		}
		if n != nil && n.guid == q.GUID {
			if answered, err := b.execute(s.ctx, m, n, q, a); err != nil || answered {
				return err
			}
		}
	}
	_, _, err = s.step(s.ctx, "", a)
	return err
}

// execute executes a request for an entry. If answered is false, the caller has to answer.
func (b *Backend) execute(ctx context.Context, m *mutex, n *entry, q request, a *answering) (answered bool, err error) {
	w := windows{millis(q.TTL), millis(q.Transition), q.Binding}
	mine := n.kind == kindOwner && (q.Token == 0 || q.Token == n.token)
	switch {
	case (q.Op == opGuard || q.Op == opAcquire && n.kind != kindBlocked) && w.ttl+w.transition > n.s.negotiated()/2:
		a.answer.Status = statusTooLong
		return false, nil
	case q.Op == opRelease:
		_, err := b.release(ctx, m, n, q, a)
		return !m.has(n), err
	case q.Op == opListen:
		n.elsewhere = true
		return false, nil
	case q.Op == opAcquire:
		status, _, err := b.take(ctx, m, n, w, a)
		switch {
		case err != nil || status != simba.StatusQueued:
			return true, err
		case q.Waits:
			if err = b.remove(ctx, m, n, n.event(simba.EventLeft, "waits at another server"), a); err == nil {
				b.Waiters.Grant(m.name, n.contender, proxy.Grant{})
			}
			return true, err
		}
		a.answer.Status = status.String()
		h, err := b.inspect(ctx, n.s, m)
		b.keepPolling(n, w, h.transitionLeft, true)
		return false, err
	case !mine:
		return false, b.grantIfFirst(ctx, m, n)
	case q.Op == opGuard:
		a.answer = answer{Status: simba.StatusRenewed.String(), Token: n.token}
		return true, b.renew(ctx, m, n, windows{w.ttl, w.transition, n.binding}, a)
	case q.Op == opBreak:
		return b.end(ctx, m, n, simba.EventBroken, q.Reason, a)
	}
	return false, nil
}
