package handoffs

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// fate is what happens to a waiter.
type fate int

const (
	lives   fate = iota // blocks in ACQUIRE … WAIT until it gets the mutex
	listens             // stays alive too: polls without WAIT, and again after each notice
	closes              // closes its connection
	isCut               // the network resets its connection
	killed              // its process is killed, so the kernel closes the connection
	gone                // polls once without WAIT, and never again
	stopped             // its process is frozen: the connection stays open, and nothing reads
	hole                // its network is gone: the connection stays open, and loses all packets
	fates
)

func (f fate) String() string {
	return [...]string{"living", "listening", "closed", "cut", "killed", "gone", "stopped", "half-open"}[f]
}

// alive reports whether the waiter lives, and must get the mutex.
func (f fate) alive() bool { return f == lives || f == listens }

// silent reports whether only keepalive can show that the waiter is dead.
func (f fate) silent() bool { return f == stopped || f == hole }

// deaths counts dead waiters by their fate.
type deaths map[fate]int

func (c deaths) add(waiters map[string]*waiter) {
	for _, w := range waiters {
		c[w.fate]++
	}
}

func (c deaths) String() string {
	var s []string
	for _, f := range slices.Sorted(maps.Keys(c)) {
		if !f.alive() {
			s = append(s, fmt.Sprint(c[f], " ", f))
		}
	}
	return strings.Join(s, ", ")
}

const livingTTL = 20 * time.Minute

// deadTTL is the TTL of dead waiters. If the lease ends before the server has replied to the
// waiter, the server queues the waiter again. Then it grants the waiter the mutex a second time. A
// busy machine may stop the server for a second or two, so the TTL is longer. A long campaign has a
// shorter TTL, and allows second grants.
func deadTTL() time.Duration {
	if simbatest.Long() {
		return 100 * time.Millisecond
	}
	return 5 * time.Second
}

// mostSilent limits the silent waiters in a round, because a round takes as long as all their
// leases. In
// a long campaign leases are short, so all waiters may be silent.
func mostSilent() int {
	if simbatest.Long() {
		return mostWaiters
	}
	return 5
}

// waiter is a contender for the mutex.
type waiter struct {
	id   string
	fate fate
	conn redis.Conn
	proc *simbatest.Process // of a waiter that is killed or stopped; else nil

	// Only a living waiter has the fields below. The waiter sets both times, and
	// then closes the channel ended.
	ended    chan struct{}
	granted  time.Time // when it received its grant
	released time.Time // just before it sent RELEASE
}

// join queues a waiter for the mutex. It may return before the server has received the request.
func (r *round) join(w *waiter) error {
	ttl := deadTTL()
	if w.fate.alive() {
		ttl = livingTTL
	}
	request := []any{r.mutex, w.id, ttl.Milliseconds()}
	if w.fate != listens && w.fate != gone {
		request = append(request, "WAIT", 0)
	}
	if w.fate == killed || w.fate == stopped {
		host, port, err := net.SplitHostPort(r.addr)
		if err != nil {
			return err
		}
		args := []string{"-h", host, "-p", port, "SIMBA.ACQUIRE"}
		for _, a := range request {
			args = append(args, fmt.Sprint(a))
		}
		w.proc = simbatest.Run(r.t, need.Program(r.t, "redis-cli", "redis-tools"), args...)
		return nil
	}
	addr := r.addr
	switch w.fate {
	case isCut:
		addr = r.cut.Addr()
	case hole:
		addr = r.hole.Addr()
	}
	var err error
	if w.conn, err = dial(addr); err != nil {
		return err
	}
	switch w.fate {
	case lives:
		w.ended = make(chan struct{})
		go r.wait(w, request)
	case listens:
		w.ended = make(chan struct{})
		notices, err := r.subscribe(w)
		if err != nil {
			return err
		}
		if _, err := w.conn.Do("SIMBA.ACQUIRE", request...); err != nil {
			return err
		}
		go r.poll(w, notices, request)
	case gone:
		_, err := w.conn.Do("SIMBA.ACQUIRE", request...)
		return err
	default:
		if err := w.conn.Send("SIMBA.ACQUIRE", request...); err != nil {
			return err
		}
		return w.conn.Flush()
	}
	return nil
}

func (r *round) wait(w *waiter, request []any) {
	defer close(w.ended)
	defer w.conn.Close()
	if !r.acquire(w, request) {
		r.t.Errorf("%s: ACQUIRE … WAIT of %s returns another status than acquired", r.mutex, w.id)
		return
	}
	r.release(w)
}

// poll runs a waiter that polls again after each notice.
func (r *round) poll(w *waiter, notices redis.PubSubConn, request []any) {
	defer close(w.ended)
	defer w.conn.Close()
	defer notices.Close()
	for {
		switch m := notices.Receive().(type) {
		case redis.Message:
			if r.acquire(w, request) {
				r.release(w)
				return
			}
		case error:
			r.t.Errorf("%s: %s gets no notice of its handoff: %v", r.mutex, w.id, m)
			return
		}
	}
}

func (r *round) subscribe(w *waiter) (redis.PubSubConn, error) {
	c, err := dial(r.addr)
	if err != nil {
		return redis.PubSubConn{}, err
	}
	notices := redis.PubSubConn{Conn: c}
	if err := notices.Subscribe("simba:{" + r.mutex + "}:" + w.id); err != nil {
		return notices, err
	}
	if s, ok := notices.Receive().(redis.Subscription); !ok {
		return notices, fmt.Errorf("subscribe: %v", s)
	}
	return notices, nil
}

func (r *round) acquire(w *waiter, request []any) bool {
	reply, err := w.conn.Do("SIMBA.ACQUIRE", request...)
	w.granted = time.Now()
	status, err := simbatest.ToRecord(reply, err)
	if err != nil {
		r.t.Errorf("%s: ACQUIRE of %s returns %v", r.mutex, w.id, err)
	}
	return err == nil && status["status"] == "acquired"
}

func (r *round) release(w *waiter) {
	w.released = time.Now()
	if n, err := redis.Int(w.conn.Do("SIMBA.RELEASE", r.mutex, w.id)); err != nil || n != 1 {
		r.t.Errorf("%s: RELEASE of %s returns %d, %v, want 1", r.mutex, w.id, n, err)
	}
}

// dial connects. A read fails if no reply arrives within simbatest.Patience.
func dial(addr string) (redis.Conn, error) {
	return redis.Dial("tcp", addr, redis.DialReadTimeout(simbatest.Patience))
}
