package handoffs

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// fate is what becomes of a waiter.
type fate int

const (
	lives   fate = iota // blocked in ACQUIRE … WAIT until its turn
	listens             // lives too: asks without WAIT, is told of its turn on its channel, and asks again
	closes              // its connection is closed in order
	isCut               // its connection is reset
	killed              // its process is killed, and its kernel closes the connection
	gone                // it asked without WAIT, and is never heard of again
	stopped             // its process is stopped: the connection stays, and nobody reads
	hole                // its network is gone: the connection stays, and nothing passes
	fates
)

func (f fate) String() string {
	return [...]string{"living", "listening", "closed", "cut", "killed", "gone", "stopped", "half-open"}[f]
}

// alive: it must get the mutex.
func (f fate) alive() bool { return f == lives || f == listens }

// silent: it is dead, and nothing tells the server before keepalive does.
func (f fate) silent() bool { return f == stopped || f == hole }

// census counts who died how.
type census map[fate]int

func (c census) add(waiters map[string]*waiter) {
	for _, w := range waiters {
		c[w.fate]++
	}
}

func (c census) String() string {
	var s []string
	for _, f := range slices.Sorted(maps.Keys(c)) {
		if !f.alive() {
			s = append(s, fmt.Sprint(c[f], " ", f))
		}
	}
	return strings.Join(s, ", ")
}

const livingTTL = time.Hour

// deadTTL is for how long one that nobody knows to be dead has the mutex. A server that cannot tell a waiter
// of its lease before the lease ends does not tell it at all, and queues it again: so it would have two turns.
// On a busy machine a server may not run for several hundred milliseconds; where the rounds are counted by the
// thousand the machine is quiet.
func deadTTL() time.Duration {
	if simbatest.Long() {
		return 100 * time.Millisecond
	}
	return 2 * time.Second
}

// waiter is one of those who want the mutex.
type waiter struct {
	id   string
	fate fate
	conn redis.Conn
	proc *simbatest.Process // of who is killed or stopped

	// Of who lives: set when its turn is over, before ended is closed.
	ended    chan struct{}
	told     time.Time // that it owns the mutex
	released time.Time // before it sends that
}

// join has a waiter queue for the mutex. It returns when its request is on the way.
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
		w.proc = simbatest.Run(r.t, stores.Need(r.t, "redis-cli", "redis-tools"), args...)
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
		turn, err := r.listen(w)
		if err != nil {
			return err
		}
		if _, err := w.conn.Do("SIMBA.ACQUIRE", request...); err != nil {
			return err
		}
		go r.poll(w, turn, request)
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

// wait is the life of one who is blocked.
func (r *round) wait(w *waiter, request []any) {
	defer close(w.ended)
	defer w.conn.Close()
	if !r.acquire(w, request) {
		r.t.Errorf("%s: %s is answered something else than acquired", r.mutex, w.id)
		return
	}
	r.release(w)
}

// poll is the life of one who listens.
func (r *round) poll(w *waiter, turn redis.PubSubConn, request []any) {
	defer close(w.ended)
	defer w.conn.Close()
	defer turn.Close()
	for {
		switch m := turn.Receive().(type) {
		case redis.Message:
			if r.acquire(w, request) {
				r.release(w)
				return
			}
		case error:
			r.t.Errorf("%s: %s is not told of its turn: %v", r.mutex, w.id, m)
			return
		}
	}
}

// listen subscribes a waiter to its own channel.
func (r *round) listen(w *waiter) (redis.PubSubConn, error) {
	c, err := dial(r.addr)
	if err != nil {
		return redis.PubSubConn{}, err
	}
	turn := redis.PubSubConn{Conn: c}
	if err := turn.Subscribe("simba:{" + r.mutex + "}:" + w.id); err != nil {
		return turn, err
	}
	if s, ok := turn.Receive().(redis.Subscription); !ok {
		return turn, fmt.Errorf("subscribe: %v", s)
	}
	return turn, nil
}

func (r *round) acquire(w *waiter, request []any) bool {
	reply, err := w.conn.Do("SIMBA.ACQUIRE", request...)
	w.told = time.Now()
	status, err := fields(reply, err)
	if err != nil {
		r.t.Errorf("%s: %s acquires: %v", r.mutex, w.id, err)
	}
	return err == nil && status["status"] == "acquired"
}

func (r *round) release(w *waiter) {
	w.released = time.Now()
	if n, err := redis.Int(w.conn.Do("SIMBA.RELEASE", r.mutex, w.id)); err != nil || n != 1 {
		r.t.Errorf("%s: %s releases: %d, %v", r.mutex, w.id, n, err)
	}
}

// fields takes what was replied for a record.
func fields(reply any, err error) (map[string]string, error) {
	values, err := redis.Values(reply, err)
	f := make(map[string]string)
	for i := 0; i+1 < len(values); i += 2 {
		name, _ := values[i].([]byte)
		switch v := values[i+1].(type) {
		case []byte:
			f[string(name)] = string(v)
		default:
			f[string(name)] = fmt.Sprint(v)
		}
	}
	return f, err
}

// dial connects; no reply of this connection takes longer than the test's patience.
func dial(addr string) (redis.Conn, error) {
	return redis.Dial("tcp", addr, redis.DialReadTimeout(simbatest.Patience))
}
