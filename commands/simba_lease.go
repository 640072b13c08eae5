package commands

import (
	"github.com/simba-resp/simba-resp"
)

func parseGuard(args [][]byte) (g simba.GuardRequest, err error) {
	if g.Mutex, g.Contender, err = parseNames(args[1], args[2]); err != nil {
		return g, err
	}
	if g.TTL, err = parseMillis("ttl", args[3], simba.MinTTL, simba.MaxTTL); err != nil {
		return g, err
	}
	o := options{rest: args[4:]}
	for o.next() {
		switch {
		case o.is("TRANSITION"):
			g.Transition = o.millis(0, simba.MaxTransition)
		case o.is("TOKEN"):
			g.Token = o.token()
		default:
			o.unknown()
		}
	}
	return g, o.err
}

func (c *client) simbaGuard(args [][]byte) {
	g, err := parseGuard(args)
	if err != nil {
		c.fail(err)
		return
	}
	out, err := c.backend().Guard(c.conn.Context(), g)
	if err != nil {
		c.fail(err)
		return
	}
	c.unbind(g.Mutex, out.Token)
	c.writeOutcome(&out)
}

func parseRelease(args [][]byte) (r simba.ReleaseRequest, err error) {
	if r.Mutex, r.Contender, err = parseNames(args[1], args[2]); err != nil {
		return r, err
	}
	o := options{rest: args[3:]}
	for o.next() {
		switch {
		case o.is("TOKEN"):
			r.Token = o.token()
		default:
			o.unknown()
		}
	}
	return r, o.err
}

func (c *client) simbaRelease(args [][]byte) {
	r, err := parseRelease(args)
	if err != nil {
		c.fail(err)
		return
	}
	released, seq, err := c.backend().Release(c.conn.Context(), r)
	if err != nil {
		c.fail(err)
		return
	}
	if released {
		delete(c.session.byMutex, r.Mutex)
	}
	c.replyYes(released, seq)
}

func (c *client) simbaCheck(args [][]byte) {
	mutex, err := parseMutex(args[1])
	if err != nil {
		c.fail(err)
		return
	}
	token, err := parseAnyToken("token", args[2])
	if err != nil {
		c.fail(err)
		return
	}
	if token == 0 { // what replies call no token is no tenure's, whatever the engine
		c.replyYes(false, 0)
		return
	}
	current, seq, err := c.backend().Check(c.conn.Context(), mutex, token)
	if err != nil {
		c.fail(err)
		return
	}
	c.replyYes(current, seq)
}

func parseBreak(args [][]byte) (mutex, reason string, err error) {
	if mutex, err = parseMutex(args[1]); err != nil {
		return "", "", err
	}
	o := options{rest: args[2:]}
	for o.next() {
		switch {
		case o.is("REASON"):
			reason = o.reason()
		default:
			o.unknown()
		}
	}
	return mutex, reason, o.err
}

func (o *options) reason() string {
	return optionValue(o, func(v []byte) (string, error) {
		if len(v) > simba.MaxReasonLen {
			return "", replyErrorf("ERR REASON has %d bytes, at most %d are allowed", len(v), simba.MaxReasonLen)
		}
		return string(v), nil
	})
}

func (c *client) simbaBreak(args [][]byte) {
	mutex, reason, err := parseBreak(args)
	if err != nil {
		c.fail(err)
		return
	}
	freed, seq, err := c.backend().Break(c.conn.Context(), mutex, reason)
	if err != nil {
		c.fail(err)
		return
	}
	c.replyYes(freed, seq)
}

// parseMutex reads a mutex. What is no name may be of any length, and is not copied.
func parseMutex(b []byte) (string, error) {
	if err := simba.CheckMutex(b); err != nil {
		return "", err
	}
	return string(b), nil
}

// replyYes replies 1 or 0.
func (c *client) replyYes(yes bool, seq simba.Seq) {
	c.conn.RestOn(seq)
	if yes {
		c.w.Int(1)
	} else {
		c.w.Int(0)
	}
}
