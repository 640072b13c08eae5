package zookeeper

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
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
	// Renew the owner's lease, or make the contender of the first node the owner. Otherwise end the
	// queue entry.
	opAcquire op = "acquire"
	opListen  op = "listen" // the contender subscribes to its own channel at the asking server
	opGuard   op = "guard"
	opRelease op = "release"
	opLeave   op = "leave" // end the queue entry
)

// request is the data of a request node. It names an entry by its GUID, which no other entry ever
// has.
type request struct {
	Op         op     `json:"op"`
	GUID       guid   `json:"guid"`
	Mutex      string `json:"mutex"`
	Contender  string `json:"contender"`
	Token      uint64 `json:"token,omitempty"`
	Mark       int64  `json:"mark,omitempty"`     // of the lease; 0 = any
	Acquired   int64  `json:"acquired,omitempty"` // see proxy.From
	TTL        int64  `json:"ttl,omitempty"`
	Transition int64  `json:"transition,omitempty"`
	// Deadline is when the asking server withdraws the request, in Unix milliseconds on the ensemble's
	// clock. In an outage it may withdraw the request only after that.
	Deadline int64 `json:"deadline"`
}

// asking returns a request for a lease.
func asking(o op, w proxy.Lease) request {
	return request{Op: o, Contender: w.Owner, Token: w.Token, TTL: w.TTL.Milliseconds(), Transition: w.Transition.Milliseconds()}
}

// answer is the data of a request node after the creator has acted.
type answer struct {
	Status string `json:"status"`
	Token  uint64 `json:"token,omitempty"`
	Mark   int64  `json:"mark,omitempty"`
	Begun  bool   `json:"begun,omitempty"` // the lease is that of a new tenure

	since     time.Time   // of the windows of the lease, or earlier
	elsewhere bool        // another server has answered
	state     proxy.State // what Take returns without a lease
}

const (
	statusLease    = "lease"    // or the entry goes on as it is
	statusReleased = "released" // or the queue entry has ended
	statusNone     = "none"     // no tenure, or no entry
	statusTooLong  = "toolong"  // the session of the creator cannot vouch for such a lease
)

// answering is a request of another server, and the answer that a step gives.
type answering struct {
	path   string
	answer answer
}

var (
	// errWithdrawn is returned when the asking server has withdrawn a request.
	errWithdrawn = errors.New("the request was withdrawn")
	// errStopping is returned when the creator of an entry is stopping.
	errStopping = proxy.NotDone{Err: errors.New("the server that granted the lease or queued the contender has stopped")}
	// errTooLong is returned for a lease that is longer than the creator's longest lease.
	errTooLong = proxy.NotDone{Err: errors.New("the lease is longer than half of the session timeout of the server that granted it")}
	// errSilent is returned when the creator of an entry does not answer.
	errSilent = proxy.NotDone{Err: errors.New("the server that granted the lease or queued the contender does not answer; it may be dead, or have too many requests")}
)

// maxRequests bounds the open requests to a server.
const maxRequests = 1000

// ask returns the answer of the creator of an entry to a request with a key, from proxy.Answers.
// Otherwise it returns a *proxy.Elsewhere, whose Ask makes the request. After an error of Ask, the
// request is not executed later, unless the ensemble does not confirm its withdrawal in time. ask
// returns errChanged if the entry does not exist any more.
func (st *store) ask(ctx context.Context, s *session, m *mutex, g guid, key string, q request) (a answer, err error) {
	if a, ok := answerOf(ctx, key); ok {
		return a, nil
	}
	if g.tag() == s.tag {
		return a, errChanged
	}
	q.GUID, q.Mutex = g, m.name
	answers := proxy.Answers(ctx)
	return a, &proxy.Elsewhere{Ask: func(ctx context.Context) error {
		asked := time.Now()
		a, err := call(ctx, st, func(ctx context.Context) (answer, error) { return st.tryAsk(ctx, s, q) })
		if errors.Is(err, errChanged) {
			proxy.Sleep(ctx, changedPause, nil)
			return nil
		}
		if a.since, a.elsewhere = asked, true; err == nil {
			answers.Store(key, a)
		}
		if err == nil && q.Op == opRelease && a.Status == statusReleased {
			answers.Store(proxy.EndedElsewhere, proxy.From{Owner: q.Contender, Token: q.Token})
		}
		return err
	}}
}

func answerOf(ctx context.Context, key string) (a answer, ok bool) {
	v, _ := proxy.Answers(ctx).LoadAndDelete(key)
	a, ok = v.(answer)
	return a, ok
}

func (st *store) tryAsk(ctx context.Context, s *session, q request) (a answer, err error) {
	marker, inbox := s.marker(q.GUID.tag()), s.inbox(q.GUID.tag())
	end, _ := ctx.Deadline()
	end = end.Add(-st.options.Timeout / 10) // so that it is withdrawn before the client gets TRYAGAIN
	q.Deadline = st.clock.Latest(end)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	for {
		path := inbox + "/" + strings.ReplaceAll(string(newTag()+newTag()), "-", "")
		m, err := s.get(ctx, marker)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return a, errChanged // the session is over, and its nodes are gone
		case err != nil:
			return a, err
		case bytes.Equal(m.data, markerStopping):
			return st.actForStopping(ctx, s, q, m.stat.Version)
		}
		res, unsure, err := s.change(ctx,
			&zk.CheckVersionRequest{Path: marker, Version: m.stat.Version},
			&zk.CreateRequest{Path: path, Data: encode(q), Acl: s.acl, Flags: zk.FlagEphemeral},
			&zk.SetDataRequest{Path: inbox, Version: -1})
		if err == nil && res[2].Stat.NumChildren > maxRequests {
			cancel() // withdraw it
		}
		switch {
		case err == nil || unsure: // an earlier attempt may have created the request
			if a, err = st.await(ctx, s, path); !errors.Is(err, zk.ErrNoNode) {
				return a, err
			}
		case errors.Is(err, zk.ErrNoNode) && len(res) > 0 && !errors.Is(res[0].Error, zk.ErrNoNode):
			if _, err = s.make(ctx, inbox, nil, zk.FlagContainer); err != nil {
				return a, err
			}
		case !among(err, zk.ErrBadVersion, zk.ErrNoNode): // a heartbeat came between, or the session is over
			return a, err
		}
	}
}

// await waits for the answer to a request. When ctx ends, it withdraws the request.
func (st *store) await(ctx context.Context, s *session, path string) (a answer, err error) {
	defer st.Go(func() { _, _, _ = s.change(s.ctx, &zk.DeleteRequest{Path: path, Version: -1}) })
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

// actForStopping executes a request whose creator has stopped, if it ends the entry. The check of the
// marker's version makes sure that the creator changes nothing more.
func (st *store) actForStopping(ctx context.Context, s *session, q request, version int32) (a answer, err error) {
	if q.Op != opRelease && q.Op != opLeave {
		return a, errStopping
	}
	names, err := s.children(ctx, q.Mutex)
	i := slices.IndexFunc(names, func(child string) bool { return guidOf(child) == q.GUID })
	if err != nil || i < 0 {
		return a, cmp.Or(err, errChanged)
	}
	n, err := st.readNode(ctx, s, q.Mutex, names[i])
	if err != nil || n == nil {
		return a, cmp.Or(err, errChanged)
	}
	owner := i == 0 && n.owned()
	switch {
	case owner != (q.Op == opRelease) || q.Token != 0 && q.Token != n.token:
		return a, errChanged
	case q.Mark != 0 || q.Acquired != 0 && q.Acquired != n.AcquiredMark: // only the creator knows the Mark
		return answer{Status: statusLease}, nil
	}
	_, unsure, err := s.change(ctx,
		append(deletes(s.latch(q.Mutex, n.child), s.lease(q.GUID)), &zk.CheckVersionRequest{Path: s.marker(q.GUID.tag()), Version: version})...)
	if errors.Is(err, zk.ErrNoNode) {
		if err = errChanged; unsure { // this request or another one has ended it
			err = nil
		}
	}
	return answer{Status: statusReleased}, err
}

// serveInbox executes the requests of other servers to a session, until the store is closed.
func (st *store) serveInbox(l *slot) {
	known := make(map[string]bool)
	w := newWatcher(l, "", func(s *session) string { return s.inbox(s.tag) })
	w.act = func(s *session, names []string, _ time.Time) {
		listed := make(map[string]bool)
		for _, name := range names {
			path := s.inbox(s.tag) + "/" + name
			if listed[path] = true; !known[path] {
				st.Go(func() { st.serveRequest(s, path) })
			}
		}
		known = listed
	}
	st.follow(w)
}

// serveRequest executes a request and answers it.
func (st *store) serveRequest(s *session, path string) {
	z, err := s.get(s.ctx, path)
	if err != nil || z.stat.Version > 0 {
		return
	}
	var q request
	if json.Unmarshal(z.data, &q) != nil || !(&record{Mutex: q.Mutex, Contender: q.Contender, Kind: kindOwner, TTL: q.TTL, Transition: q.Transition}).isValid() {
		q = request{} // nobody has that entry
	}
	_, err = step(s.ctx, st, q.Mutex, func(ctx context.Context, s *session, m *mutex) (none struct{}, err error) {
		if q.Deadline != 0 && st.storeNow() > q.Deadline {
			return none, nil // the asking server withdraws it
		}
		a := &answering{path, answer{Status: statusNone}}
		n, err := st.entryOf(ctx, m, q.Contender)
		switch {
		case err != nil:
			return none, err
		case n == nil || n.guid != q.GUID:
			_, _, err = s.step(ctx, "", a)
			return none, err
		}
		defer st.hooks.Changed(m.name)
		return none, st.execute(ctx, m, n, q, a)
	})
	if errors.As(err, new(*simba.MisconfiguredError)) {
		st.log.Warn("cannot execute a request of another server", "err", err)
	}
}

// execute executes a request for an entry, and answers it.
func (st *store) execute(ctx context.Context, m *mutex, n *entry, q request, a *answering) error {
	w := proxy.Lease{TTL: proxy.Between(0, q.TTL), Transition: proxy.Between(0, q.Transition), Since: time.Now()}
	owner := n.kind == kindOwner
	switch {
	case q.Op == opListen:
		if a.answer.Status = statusLease; !st.hooks.Listens(m.name, n.contender) && !owner {
			return errChanged // the engine has yet to queue it
		}
	case q.Op == opAcquire:
		_, names, err := st.takeEntry(ctx, m, n, w, a)
		if err == nil && a.answer.Begun {
			st.hooks.Left(m.name, n.contender, "")
		}
		if err != nil || a.answer.Status != statusNone {
			return err
		}
		n.ahead = n.s.latch(m.name, names[0])
		defer func() { n.ahead = "" }()
		return st.endEntry(ctx, m, n, "asks another server", a)
	case q.Op == opLeave:
		if a.answer.Status = statusReleased; !owner {
			return st.endEntry(ctx, m, n, "left", a)
		}
	case !owner || q.Token != 0 && q.Token != n.token:
	case q.Mark != 0 && q.Mark != n.mark() || q.Acquired != 0 && q.Acquired != n.acquired:
		a.answer.Status = statusLease // it goes on
	case q.Op == opGuard:
		a.answer, w.Mark = leaseOf(n.token, w.Since, false), n.acquired
		return st.renew(ctx, m, n, w, a)
	case q.Op == opRelease:
		a.answer.Status = statusReleased
		return st.remove(ctx, m, n, a)
	}
	_, _, err := n.s.step(ctx, "", a)
	return err
}

// endEntry takes a waiter out of the queue for another server.
func (st *store) endEntry(ctx context.Context, m *mutex, n *entry, reason string, a *answering) error {
	err := st.remove(ctx, m, n, a)
	if err == nil {
		st.hooks.Left(m.name, n.contender, reason)
	}
	return err
}
