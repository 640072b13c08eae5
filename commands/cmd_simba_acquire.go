package commands

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

var simbaAcquireRow = command{
	name: "simba.acquire", arity: -4, flags: write | denyoom | renewing | noscript | blocking, keys: mutexWritten, actor: contenderActor,
	since: "0.1.0", run: (*client).simbaAcquire,
	summary: "Acquires the mutex, renews its lease, or queues or waits for it",
	args:    "mutex contender ttl [TRANSITION ms] [WAIT ms [VIA waiter REQUEST n] | NOQUEUE] [SESSION]",
}

const (
	// maxWait is the largest WAIT in milliseconds. Clients that mean "for ever" send huge values,
	// and floats hold every integer up to 2^53.
	maxWait = 1 << 53
	// longestWait is the largest WAIT with a deadline. A longer WAIT is unlimited, because its
	// deadline could overflow time.Time.
	longestWait = 100 * 365 * 24 * time.Hour
)

type acquisition struct {
	simba.AcquireRequest
	wait    bool          // WAIT was given
	limit   time.Duration // longest wait; 0 = unlimited
	session bool          // SESSION was given
	via     viaRequest
}

func parseAcquire(args [][]byte) (a acquisition, err error) {
	if a.Mutex, a.Contender, err = parseNames(args[1], args[2]); err != nil {
		return a, err
	}
	if a.TTL, err = parseMillis("ttl", args[3], simba.MinTTL, simba.MaxTTL); err != nil {
		return a, err
	}
	o := options{rest: args[4:]}
	for o.next("TRANSITION", "WAIT", "NOQUEUE", "SESSION", "VIA") {
		switch o.name {
		case "TRANSITION":
			a.Transition = o.millis(0, simba.MaxTransition)
		case "WAIT":
			a.wait, a.limit = true, o.wait()
		case "NOQUEUE":
			a.NoQueue = true
		case "SESSION":
			a.session = true
		case "VIA":
			a.via = o.via()
		}
	}
	switch {
	case o.err != nil:
	case a.wait && a.NoQueue:
		o.err = replyError("ERR syntax error: WAIT and NOQUEUE exclude each other")
	case a.via.n != 0 && (!a.wait || a.session):
		o.err = replyError("ERR syntax error: VIA needs WAIT, and excludes SESSION")
	}
	return a, o.err
}

// wait takes the value of WAIT in milliseconds, 0 = no limit.
func (o *options) wait() time.Duration {
	ms := optionValue(o, func(v []byte) (int64, error) {
		return parseRange(o.name, v, 0, maxWait, " milliseconds, 0 = no limit")
	})
	if ms > longestWait.Milliseconds() {
		return 0
	}
	return time.Duration(ms) * time.Millisecond
}

func (c *client) simbaAcquire(args [][]byte) error {
	a, err := parseAcquire(args)
	if err == nil {
		err = c.x.vouch(a.TTL + a.Transition)
	}
	if err != nil {
		c.x.observers.stats.acquires.add(0)
		return err
	}
	if a.session {
		a.Session = c.conn.ID()
	}
	a.Full = c.permit.full
	via := a.via.n != 0 && !c.multi.executing
	if !via {
		c.x.supersede(tenureHash(a.Mutex, a.Contender), nil)
	}
	var out simba.Outcome
	var ticket simba.Ticket // not nil = the client got the mutex after it was blocked
	switch {
	case a.wait && c.multi.executing:
		out, err = c.acquireUnwaiting(a)
	case via:
		var waits bool
		if out, waits, err = c.acquireVia(a); waits {
			writeOutcome(c.w, &out, "request", int64(a.via.n))
			c.conn.ReplyAfter(out.Seq)
			return nil
		}
	case a.wait && c.x.gate.waits.enter(c.x.server.MaxClients()):
		out, ticket, err = c.acquireWaiting(a)
		c.x.gate.waits.leave()
	case a.wait:
		out, err = c.acquireOrRefuse(a)
	default:
		out, _, err = c.backend().Acquire(c.conn.Context(), a.AcquireRequest)
	}
	if err == nil && (out.Status == simba.StatusAcquired || out.Status == simba.StatusRenewed) {
		var seq simba.Seq
		seq, err = c.x.vouchAfter(c.conn.Context(), c.backend(), a.Mutex, a.Contender, a.TTL+a.Transition, &out)
		c.conn.ReplyAfter(seq)
	}
	c.x.countAcquire(out.Status, err, a.wait && !c.multi.executing, c.call.started)
	if err != nil {
		c.bindUnknown(&a, err)
		return err
	}
	c.bindOrUnbind(&a, &out)
	c.conn.ReplyAfter(out.Seq)
	writeOutcome(c.w, &out)
	if ticket != nil {
		c.deliver(&a, &out, ticket)
	}
	return nil
}

// countAcquire counts a request by its reply or outcome, and by the time until its grant if it could
// wait.
func (x *Commands) countAcquire(status simba.Status, err error, couldWait bool, started time.Duration) {
	if err != nil {
		status = 0
	}
	x.observers.stats.acquires.add(status)
	if couldWait && status == simba.StatusAcquired {
		x.observers.stats.waited.add(x.age() - started)
	}
}

// vouch returns an error if the engine does not vouch for such a lease, ttl + transition, at
// present. Clients read the number behind the code.
func (x *Commands) vouch(lease time.Duration) error {
	if x.cfg.LongestLease == nil || lease <= x.cfg.LongestLease() {
		return nil
	}
	return replyErrorf("TOOLONG %d ms is the longest lease (ttl + transition), half of the session timeout that ZooKeeper granted: "+
		"ask for less, or raise zookeeper-session-timeout and ZooKeeper's maxSessionTimeout", x.cfg.LongestLease().Milliseconds())
}

// vouchAfter is vouch after an acquisition or a renewal. The session may have become shorter while
// the request waited. It releases a tenure of which the client does not learn, and returns the Seq
// of the release.
func (x *Commands) vouchAfter(ctx context.Context, b simba.Backend, mutex, contender string, lease time.Duration, out *simba.Outcome) (simba.Seq, error) {
	refusal := x.vouch(lease)
	if refusal == nil || out.Status != simba.StatusAcquired {
		return 0, refusal
	}
	_, seq, err := b.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: contender, Token: out.Token})
	return seq, cmp.Or(err, refusal)
}

// acquireUnwaiting is ACQUIRE ... WAIT inside EXEC. There WAIT times out at once.
func (c *client) acquireUnwaiting(a acquisition) (simba.Outcome, error) {
	a.Waiter = c.conn.NewWait()
	out, ticket, err := c.backend().Acquire(c.conn.Context(), a.AcquireRequest)
	if err != nil || ticket == nil {
		return out, err
	}
	return ticket.End(simba.EndTimeout)
}

// acquireOrRefuse is ACQUIRE ... WAIT when no more clients may wait. It renews the lease of an
// owner, grants a free mutex, and refuses any other request.
func (c *client) acquireOrRefuse(a acquisition) (simba.Outcome, error) {
	a.NoQueue = true
	out, _, err := c.backend().Acquire(c.conn.Context(), a.AcquireRequest)
	if err == nil && out.Status == simba.StatusBusy {
		c.conn.ReplyAfter(out.Seq)
		err = errTooManyWaiting
	}
	return out, err
}

// acquireVia is ACQUIRE ... WAIT ... VIA. waits is true if SIMBA.NEXT returns the outcome. If the
// user has no such waiter on this server, the contender queues without a wait.
func (c *client) acquireVia(a acquisition) (out simba.Outcome, waits bool, err error) {
	v, full, err := c.enter(&a)
	switch {
	case err != nil:
		return out, false, err
	case v == nil:
		c.x.supersede(tenureHash(a.Mutex, a.Contender), nil)
		out, _, err = c.backend().Acquire(c.conn.Context(), a.AcquireRequest)
		return out, false, err
	}
	c.x.supersede(v.tenure.of, v.tenure)
	if full {
		out, err = c.acquireOrRefuse(a)
		v.withdraw(out)
		return out, false, err
	}
	a.Waiter = v
	out, ticket, err := c.backend().Acquire(c.conn.Context(), a.AcquireRequest)
	if err == nil && ticket != nil {
		if v.start(ticket, a.limit) {
			v.judge() // the user's rules may have changed before rejudge could find the wait
			out.Status = simba.StatusQueued
			return out, true, nil
		}
		out, err = ticket.End(simba.EndGone)
	}
	v.withdraw(out)
	return out, false, err
}

// acquireWaiting is ACQUIRE ... WAIT. If a wait ended with a grant, it returns the ticket, by which
// deliver can abandon the grant. For a grant without a wait, the ticket is nil.
func (c *client) acquireWaiting(a acquisition) (out simba.Outcome, ticket simba.Ticket, err error) {
	w := c.conn.NewWait()
	a.Waiter = w
	out, ticket, err = c.backend().Acquire(c.conn.Context(), a.AcquireRequest)
	if err != nil || ticket == nil {
		return out, nil, err
	}
	var deadline time.Time
	if a.limit > 0 {
		deadline = c.x.cfg.Info.Started.Add(c.call.started + a.limit)
	}
	if !out.Settled {
		c.conn.ReplyAfter(0) // the first Await commits, so that the notice of the queue entry is sent
	}
	call := &blockedCall{mutex: a.Mutex, contender: a.Contender, wait: w}
	c.waiting.Store(call)
	call.judge(c) // the user's rules may have changed before rejudge could find the call
	var why resp.Wakeup
	var revoked *denial
	for out.Status == simba.StatusWaiting && err == nil {
		parked := time.Now()
		why = w.Await(deadline)
		c.call.parked += time.Since(parked)
		reason := endReasons[why]
		if revoked = call.revoked.Load(); revoked != nil && why == resp.Woken {
			reason = simba.EndLeft
		}
		if out, err = ticket.End(reason); !out.Settled {
			c.conn.ReplyAfter(out.Seq)
		}
	}
	c.waiting.Store(nil)
	if err == nil && (out.Status == simba.StatusAcquired || out.Status == simba.StatusRenewed) {
		err = c.commitGrant(&a, &out)
	}
	switch { // a grant takes precedence over a timeout, an unblock or a shutdown
	case err != nil:
		return out, nil, err
	case out.Status == simba.StatusAcquired:
		return out, ticket, nil
	case out.Status == simba.StatusRenewed:
		return out, nil, nil
	}
	if revoked != nil {
		c.noteDenial(revoked, c.multi.where())
		return out, nil, revoked
	}
	return out, nil, unblocked[why]
}

// unblocked has the errors of blocked commands that end early.
var unblocked = map[resp.Wakeup]error{
	resp.UnblockedError: replyError("UNBLOCKED client unblocked via CLIENT UNBLOCK"),
	resp.ShuttingDown:   replyError("UNBLOCKED the server is shutting down; ask again when it is back"),
}

// commitGrant waits until a grant after a wait is durable. The lease runs meanwhile, so commitGrant
// subtracts the time of the commit from the windows in the reply. If the lease has expired by then,
// the reply is `timeout`. If the contender has renewed the lease meanwhile, the reply shows the
// renewed lease.
func (c *client) commitGrant(a *acquisition, out *simba.Outcome) error {
	began := time.Now()
	if c.conn.Commit() != nil {
		return nil // the commit failed: no reply will be sent
	}
	c.call.parked += time.Since(began)
	if age(out, began) {
		return nil
	}
	asked := time.Now()
	t, seq, err := c.backend().Owner(c.conn.Context(), a.Mutex)
	if err != nil {
		return err
	}
	c.conn.ReplyAfter(seq)
	is := simba.Outcome{Status: simba.StatusTimeout, Owner: t.Owner, Token: t.Token, TTL: t.TTL, Transition: t.Transition, Seq: seq}
	if t.Token == out.Token { // the contender has renewed the lease
		is.Status = out.Status
		if !age(&is, asked) {
			is = simba.Outcome{Status: simba.StatusTimeout, Seq: seq}
		}
	}
	*out = is
	return nil
}

// age subtracts the time since a grant from the windows in its outcome. It returns false if the
// lease has ended.
func age(out *simba.Outcome, granted time.Time) bool {
	took := time.Since(granted).Truncate(time.Millisecond)
	if took >= out.Transition {
		return false
	}
	out.TTL, out.Transition = max(0, out.TTL-took), out.Transition-took
	return true
}

// endReasons are the reasons for which a blocked ACQUIRE calls its ticket.
var endReasons = map[resp.Wakeup]simba.EndReason{
	resp.Woken:            simba.EndWoken,
	resp.TimedOut:         simba.EndTimeout,
	resp.UnblockedTimeout: simba.EndTimeout,
	resp.UnblockedError:   simba.EndLeft,
	resp.ShuttingDown:     simba.EndLeft,
	resp.Gone:             simba.EndGone,
}

// bindOrUnbind updates the session's leases after an acquire.
func (c *client) bindOrUnbind(a *acquisition, out *simba.Outcome) {
	owns := out.Status == simba.StatusAcquired || out.Status == simba.StatusRenewed
	switch {
	case owns && a.session:
		c.session.bind(c.conn.Context(), c.x.store.backend, a.Mutex, a.Contender, out.Token)
	case owns:
		delete(c.session.byMutex, a.Mutex) // renewed without SESSION, the lease is no longer bound
	default:
		c.session.unbind(a.Mutex, out.Token)
	}
}

// deliver sends the reply of a grant after a wait. If the client has disconnected, deliver hands
// the mutex off to the next waiter.
func (c *client) deliver(a *acquisition, out *simba.Outcome, ticket simba.Ticket) {
	if c.conn.Flush() == nil {
		return
	}
	delete(c.session.byMutex, a.Mutex)
	c.x.abandon(ticket, a.Mutex, a.Contender, out.Token)
}

// abandon hands off a mutex whose waiter did not receive the grant.
func (x *Commands) abandon(ticket simba.Ticket, mutex, contender string, token uint64) {
	seq, err := ticket.Abandon()
	if err == nil {
		err = x.store.backend.Commit(seq)
	}
	if err != nil {
		x.cfg.Logger.Warn("cannot hand off a mutex whose waiter has disconnected; its lease will expire",
			"mutex", mutex, "contender", contender, "token", token, "err", err)
	}
}

// writeOutcome writes the reply of ACQUIRE and GUARD, or an outcome that NEXT returns, after other
// fields.
func writeOutcome(w *resp.Writer, out *simba.Outcome, others ...any) {
	w.Map(6 + len(others)/2)
	w.Pairs(others...)
	w.Pairs(
		"status", out.Status.String(),
		"owner", out.Owner,
		"token", int64(out.Token),
		"ttl", out.TTL.Milliseconds(),
		"transition", out.Transition.Milliseconds(),
		"position", int64(out.Position),
	)
}

// errTooManyWaiting is the reply to a WAIT beyond the limit. Do not change the prefix "ERR max
// number of blocked clients reached", because clients match it.
const errTooManyWaiting replyError = "ERR max number of blocked clients reached: ask again later, or without WAIT"

// bindUnknown records a lease that SESSION may have bound, if the store did not answer or refused a
// part of the request. When the session ends, the server tries to release the lease.
func (c *client) bindUnknown(a *acquisition, err error) {
	lost, refusal := (*simba.UnavailableError)(nil), (*simba.MisconfiguredError)(nil)
	unknown := errors.As(err, &lost) || errors.As(err, &refusal)
	if _, bound := c.session.byMutex[a.Mutex]; a.session && !bound && unknown {
		c.session.bind(c.conn.Context(), c.x.store.backend, a.Mutex, a.Contender, unknownToken)
	}
}
