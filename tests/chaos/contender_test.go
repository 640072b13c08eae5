package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

const (
	dialTimeout  = 300 * time.Millisecond  // to connect
	pingTimeout  = 700 * time.Millisecond  // for the reply to PING
	replyTimeout = 2500 * time.Millisecond // for other replies, in addition to the time of WAIT
)

// latest keeps the latest instant that callers note. It is safe for concurrent use.
type latest struct{ at atomic.Int64 }

func (l *latest) note(at instant) {
	for {
		old := l.at.Load()
		if old >= at || l.at.CompareAndSwap(old, at) {
			return
		}
	}
}

// mayLose is the number of writes without a reply after which a contender only reads. Each such
// write doubles the orders that porcupine must try. After the fault, the contender continues under
// another id. Otherwise a fault that loses many replies would leave no contender that writes.
const mayLose = 2

// contender is a client that contends for one mutex. In random order it acquires, renews and
// releases the mutex, reads its owner, and forgets its tenure. It also sends late requests of
// earlier tenures.
type contender struct {
	id, mutex string
	successor string // its next id, for the time after the fault; "" = already used
	history   *history
	rng       *rand.Rand
	routes    []*route
	at        int // the index of the present route
	counted   *counter
	healed    *atomic.Int64 // the instant when the fault was healed; 0 = not yet
	hurry     *atomic.Bool  // set while the window has too few operations

	conn  redis.Conn // nil = not connected
	doubt bool       // a write got no reply, and no request since has got one
	lost  int        // the number of writes without a reply

	token uint64  // the token of its present tenure; 0 = it knows of none
	until instant // the latest end of its lease
	seen  uint64  // the token in the last reply that had one, of any owner
	past  uint64  // the token of an earlier tenure of its own
}

// run lets the contender contend until ctx ends. It returns the first error that no fault explains.
func (c *contender) run(ctx context.Context) error {
	defer c.hangUp()
	for ctx.Err() == nil {
		if c.conn == nil && !c.connect() {
			c.at = c.rng.IntN(len(c.routes))
			time.Sleep(30 * time.Millisecond) // no server answers
			continue
		}
		if c.rng.IntN(60) == 0 { // change the server now and then
			c.hangUp()
			c.at = c.rng.IntN(len(c.routes))
			continue
		}
		if c.lost >= mayLose && c.successor != "" && c.served() {
			c.id, c.successor, c.lost, c.token, c.past = c.successor, "", 0, 0, 0
		}
		if err := c.do(c.choose()); err != nil {
			return err
		}
		c.pause(30 * time.Millisecond)
	}
	return nil
}

func (c *contender) pause(atMost time.Duration) {
	if c.hurry.Load() && !c.doubt {
		return
	}
	time.Sleep(time.Duration(c.rng.Int64N(int64(atMost)))) // think time
}

func (c *contender) hangUp() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// connect opens a connection, and sends PING before any other request. A frozen server still
// accepts connections. Then the PING gets no reply, and no write is lost.
func (c *contender) connect() bool {
	conn, err := redis.Dial("tcp", c.routes[c.at].Addr(), redis.DialConnectTimeout(dialTimeout), redis.DialWriteTimeout(dialTimeout))
	if err != nil {
		return false
	}
	if _, err := redis.DoWithTimeout(conn, pingTimeout, "PING"); err != nil {
		conn.Close()
		return false
	}
	c.conn = conn
	return true
}

// served reports whether a client sent a request on this route after the fault and got a reply.
func (c *contender) served() bool {
	healed := c.healed.Load()
	return !c.doubt && healed != 0 && c.routes[c.at].good.at.Load() > healed
}

func (c *contender) choose() (request, []any) {
	die := c.rng.IntN(100)
	switch {
	case c.doubt: // send no write before some reply arrives
		return c.ask(owner, 0)
	case c.lost >= mayLose && c.seen != 0 && die < 50:
		return c.ask(check, c.seen)
	case c.lost >= mayLose:
		return c.ask(owner, 0)
	case c.token != 0 && now() > c.until:
		c.past, c.token = c.token, 0
		if die < 50 {
			return c.ask(guard, c.past)
		}
	}
	if c.token != 0 {
		switch {
		case die < 35:
			return c.ask(release, c.token)
		case die < 37:
			return c.ask(release, 0)
		case die < 65:
			return c.ask(guard, c.token)
		case die < 70:
			return c.ask(guard, 0)
		case die < 78:
			return c.ask(acquire, 0)
		case die < 86:
			return c.ask(check, c.token)
		case die < 92:
			return c.ask(owner, 0)
		case die < 93:
			return c.ask(breakUp, 0)
		case die < 96 && c.past != 0: // a late request of an earlier tenure
			return c.ask(guard, c.past)
		case die < 98 && c.past != 0:
			return c.ask(release, c.past)
		}
		c.past, c.token = c.token, 0 // it forgets its tenure
	}
	switch {
	case die < 35:
		return c.ask(acquire, 0)
	case die < 60:
		return c.ask(wait, 0)
	case die < 72:
		return c.ask(owner, 0)
	case die < 84 && c.seen != 0:
		return c.ask(check, c.seen)
	case die < 90 && c.past != 0:
		return c.ask(guard, c.past)
	case die < 95 && c.past != 0:
		return c.ask(release, c.past)
	case die < 96 && c.rng.IntN(3) == 0:
		return c.ask(breakUp, 0)
	}
	return c.ask(acquire, 0)
}

func (c *contender) ask(k kind, token uint64) (request, []any) {
	r := request{kind: k, contender: c.id, token: token, server: c.routes[c.at].server}
	args := []any{c.mutex}
	switch k {
	case acquire, wait, guard:
		ttl, transition := 40+c.rng.IntN(300), c.rng.IntN(200)
		if c.rng.IntN(12) == 0 {
			ttl += 1400 // so long that the lease outlasts a fault
		}
		r.lease = time.Duration(ttl+transition) * time.Millisecond
		args = append(args, c.id, ttl, "TRANSITION", transition)
		switch {
		case k == wait:
			args = append(args, "WAIT", 20+c.rng.IntN(300))
		case k == acquire && c.rng.IntN(3) > 0:
			args = append(args, "NOQUEUE")
		case k == guard && token != 0:
			args = append(args, "TOKEN", token)
		}
	case release:
		args = append(args, c.id)
		if token != 0 {
			args = append(args, "TOKEN", token)
		}
	case check:
		r.contender = ""
		args = append(args, token)
	case owner, breakUp:
		r.contender = ""
	}
	return r, args
}

var commands = [...]string{
	acquire: "SIMBA.ACQUIRE", wait: "SIMBA.ACQUIRE", guard: "SIMBA.GUARD", release: "SIMBA.RELEASE",
	owner: "SIMBA.OWNER", check: "SIMBA.CHECK", breakUp: "SIMBA.BREAK",
}

func (c *contender) do(r request, args []any) error {
	timeout := replyTimeout
	if r.kind == wait {
		timeout += 320 * time.Millisecond
	}
	d := c.routes[c.at]
	r.call = now()
	raw, err := redis.DoWithTimeout(c.conn, timeout, commands[r.kind], args...)
	o := operation{r, reply{ret: now()}}
	if err == nil {
		err = o.read(raw)
	}
	var said redis.Error
	switch {
	case err == nil:
		c.doubt = false
		c.counted.note(o, c.healed.Load())
		d.good.note(r.call)
	case !errors.As(err, &said): // no reply
		o.unknown = true
		c.hangUp()
		c.at = c.rng.IntN(len(c.routes))
	case strings.HasPrefix(string(said), "TRYAGAIN ") || strings.HasPrefix(string(said), "UNBLOCKED ") || strings.HasPrefix(string(said), "ERR engine redis misconfigured: "):
		o.unknown = true
	default:
		return fmt.Errorf("%s %v: %w", commands[r.kind], args, err)
	}
	if o.unknown && r.kind.writes() {
		c.doubt = true
		c.lost++
	}
	c.history.add(o)
	c.learn(o)
	return nil
}

// learn updates what the contender believes after a reply. The judges do not use this belief, which
// may be wrong.
func (c *contender) learn(o operation) {
	if o.unknown {
		return
	}
	if o.reply.token != 0 {
		c.seen = o.reply.token
	}
	switch {
	case o.status == "acquired" || o.status == "renewed":
		c.token, c.until = o.reply.token, after(o.ret, o.lease)
	case o.request.token != 0 && o.request.token != c.token: // the reply is about another tenure
	case o.kind == release || o.status == "lost":
		if c.token != 0 {
			c.past, c.token = c.token, 0
		}
	}
}

func (o *operation) read(raw any) error {
	switch o.kind {
	case release, check, breakUp:
		n, err := redis.Int(raw, nil)
		o.done = n == 1
		return err
	}
	r, err := simbatest.ToRecord(raw, nil) // nil if the mutex is free
	if err != nil {
		return err
	}
	if r == nil && o.kind != owner {
		return errors.New("the reply is null")
	}
	o.status, o.owner, o.reply.token = r.Text("status"), r.Text("owner"), uint64(r.Number("token"))
	o.left = time.Duration(r.Number("transition")) * time.Millisecond
	return nil
}
