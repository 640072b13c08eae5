package commands

import (
	"cmp"
	"math"

	"github.com/simba-resp/simba-resp"
)

var simbaGuardRow = command{
	name: "simba.guard", arity: -4, flags: write | fast, keys: mutexWritten, actor: contenderActor,
	since: "0.1.0", run: (*client).simbaGuard,
	summary: "Renews the lease if the contender is still the owner",
	args:    "mutex contender ttl [TRANSITION ms] [TOKEN token]",
}

var simbaReleaseRow = command{
	name: "simba.release", arity: -3, flags: write | fast, keys: mutexWritten, actor: contenderActor,
	since: "0.1.0", run: (*client).simbaRelease,
	summary: "Releases the mutex, or leaves its queue",
	args:    "mutex contender [TOKEN token | VIA waiter REQUEST n]",
}

var simbaCheckRow = command{
	name: "simba.check", arity: 3, flags: readonly | fast, keys: mutexRead, since: "0.1.0", run: (*client).simbaCheck,
	summary: "Reports whether a token is that of the present tenure, for a protected resource",
	args:    "mutex token",
}

var simbaBreakRow = command{
	name: "simba.break", arity: -2, flags: write | admin, keys: mutexWritten, since: "0.1.0", run: (*client).simbaBreak,
	summary: "Ends the tenure of any owner and hands the mutex off to the next waiter",
	args:    "mutex [REASON text]",
}

// guard parses and serves GUARD, without its reply.
func (c *client) guard(args [][]byte) (g simba.GuardRequest, out simba.Outcome, err error) {
	if g.Mutex, g.Contender, err = parseNames(args[1], args[2]); err != nil {
		return g, out, err
	}
	if g.TTL, err = parseMillis("ttl", args[3], simba.MinTTL, simba.MaxTTL); err != nil {
		return g, out, err
	}
	o := options{rest: args[4:]}
	for o.next("TRANSITION", "TOKEN") {
		switch o.name {
		case "TRANSITION":
			g.Transition = o.millis(0, simba.MaxTransition)
		case "TOKEN":
			g.Token = o.token()
		}
	}
	if err = cmp.Or(o.err, c.x.vouch(g.TTL+g.Transition)); err != nil {
		return g, out, err
	}
	out, err = c.backend().Guard(c.conn.Context(), g)
	if err == nil && out.Status == simba.StatusRenewed {
		err = c.x.vouch(g.TTL + g.Transition) // the session may have become shorter meanwhile
	}
	return g, out, err
}

func (c *client) simbaGuard(args [][]byte) error {
	g, out, err := c.guard(args)
	if err != nil {
		c.x.observers.stats.guards.add(0)
		return err
	}
	c.x.observers.stats.guards.add(out.Status)
	c.session.unbind(g.Mutex, out.Token)
	c.conn.ReplyAfter(out.Seq)
	writeOutcome(c.w, &out)
	return nil
}

func (c *client) simbaRelease(args [][]byte) error {
	mutex, contender, err := parseNames(args[1], args[2])
	if err != nil {
		return err
	}
	r, via := simba.ReleaseRequest{Mutex: mutex, Contender: contender}, viaRequest{}
	o := options{rest: args[3:]}
	for o.next("TOKEN", "VIA") {
		switch o.name {
		case "TOKEN":
			r.Token = o.token()
		case "VIA":
			via = o.via()
		}
	}
	switch {
	case o.err != nil:
		return o.err
	case via.n != 0 && r.Token != 0:
		return replyError("ERR syntax error: TOKEN and VIA exclude each other")
	}
	var released bool
	var seq simba.Seq
	if via.n != 0 {
		released, seq, err = c.cancel(via, r.Mutex, r.Contender)
	} else {
		released, seq, err = c.backend().Release(c.conn.Context(), r)
	}
	if err == nil && released {
		delete(c.session.byMutex, r.Mutex)
	}
	return c.replyYes(released, seq, err)
}

func (c *client) simbaCheck(args [][]byte) error {
	mutex, err := parseMutex(args[1])
	if err != nil {
		return err
	}
	token, err := parseRange("token", args[2], 0, math.MaxInt64, "")
	if err != nil {
		return err
	}
	if token == 0 { // in replies 0 means "no token", so 0 is never current
		return c.replyYes(false, 0, nil)
	}
	return c.replyYes(c.backend().Check(c.conn.Context(), mutex, uint64(token)))
}

func (c *client) simbaBreak(args [][]byte) error {
	mutex, err := parseMutex(args[1])
	if err != nil {
		return err
	}
	reason := ""
	o := options{rest: args[2:]}
	for o.next("REASON") {
		reason = o.text(simba.MaxReasonLen)
	}
	if o.err != nil {
		return o.err
	}
	return c.replyYes(c.backend().Break(c.conn.Context(), mutex, reason))
}
