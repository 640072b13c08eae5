package client

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// nextWait is how long SIMBA.NEXT waits for an outcome. Without a reply after nextTimeout, the
	// connection is broken.
	nextWait    = 2 * time.Second
	nextTimeout = 3 * time.Second
	// idleAfter is how long a connection is kept that nobody uses.
	idleAfter = 30 * time.Second
	// refusedPause is how long a Client polls after the server has refused SIMBA.NEXT.
	refusedPause = time.Minute
)

// errWaiterGone is the outcome of a wait whose connection has ended.
var errWaiterGone = errors.New("the connection for outcomes has ended")

// via names a request that waits, and whose SIMBA.NEXT returns the outcome. The zero via is none.
type via struct {
	waiter string
	n      uint64
}

// wait is one request to acquire that may wait at the server.
type wait struct {
	via
	outcome chan outcome // has room for the only outcome
}

type outcome struct {
	reply reply
	err   error
}

// waits has the connection on which SIMBA.NEXT returns the outcomes of all waits of a Client.
//
// The connection opens when a contender finds that it has to wait, and closes when nobody has waited
// for idleAfter. When it ends, all its waits end with errWaiterGone. Their contenders ask again, and
// open it again. Safe for concurrent use.
type waits struct {
	c       *Client
	running sync.WaitGroup
	ctx     context.Context // ends when the Client is closed
	end     context.CancelFunc

	mu      sync.Mutex // guards what follows
	rdb     *redis.Client
	bound   string        // the name of the waiter; "" = the connection is not open
	opened  chan struct{} // closed when the connection is open or has failed; nil = none
	last    uint64        // the number of the last wait
	all     map[uint64]*wait
	used    time.Time // when the connection was opened, or the last wait ended
	refused time.Time // when the server refused SIMBA.NEXT; zero = it did not
	closed  bool
}

func newWaits(c *Client) *waits {
	w := &waits{c: c, all: make(map[uint64]*wait)}
	w.ctx, w.end = context.WithCancel(context.Background())
	return w
}

// dial returns a go-redis client that connects once. A pool would replace a connection that is old or
// broken without an error. The server ends all waits of the old one, and the Client must learn that.
func (w *waits) dial() *redis.Client {
	o := *w.c.rdb.Options()
	o.PoolSize, o.MinIdleConns, o.MaxIdleConns, o.MaxActiveConns, o.MaxRetries, o.DialerRetries = 1, 0, 0, 0, -1, 1
	// go-redis writes to the config of its client.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.ReadTimeout = nextTimeout
	dial := o.Dialer
	var dialed atomic.Bool
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialed.Swap(true) {
			return nil, errWaiterGone
		}
		return dial(ctx, network, addr)
	}
	return redis.NewClient(&o)
}

// add adds a wait for a request that is about to be sent. It returns nil if the connection is not
// open.
func (w *waits) add() *wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bound == "" {
		return nil
	}
	w.last++
	one := &wait{via{w.bound, w.last}, make(chan outcome, 1)}
	w.all[one.n] = one
	return one
}

// remove ends the interest in a wait.
func (w *waits) remove(one *wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, one.n)
	w.used = time.Now()
}

// open opens the connection. The result is closed when the connection is open or has failed. It is
// nil if there can be none for now.
func (w *waits) open() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed || time.Since(w.refused) < refusedPause:
		return nil
	case w.opened == nil:
		w.opened = make(chan struct{})
		w.rdb = w.dial()
		w.running.Go(w.run)
	}
	return w.opened
}

// run uses one connection, from its begin to its end.
func (w *waits) run() {
	name := rand.Text()
	_, err := w.next(name, 0)
	w.mu.Lock()
	first := w.refused.IsZero()
	switch {
	case err == nil:
		w.bound, w.used, w.refused = name, time.Now(), time.Time{}
	case refused(err):
		w.refused = time.Now()
	}
	close(w.opened)
	w.mu.Unlock()
	if first && refused(err) {
		w.c.log.Error("the server refuses SIMBA.NEXT; waiters poll instead", "err", err)
	}
	for err == nil && !w.isIdle() {
		err = w.collect(name)
	}
	w.mu.Lock()
	over := w.all
	w.bound, w.opened, w.all = "", nil, make(map[uint64]*wait)
	_ = w.rdb.Close() // the server hands on what this connection did not receive
	for _, one := range over {
		one.outcome <- outcome{err: errWaiterGone}
	}
	w.mu.Unlock()
}

func (w *waits) isOpen() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound != ""
}

func (w *waits) isIdle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	idle := w.closed || len(w.all) == 0 && time.Since(w.used) >= idleAfter
	if idle {
		w.bound = "" // so that no wait is added any more
	}
	return idle
}

func (w *waits) next(name string, d time.Duration) ([]map[string]any, error) {
	ctx, cancel := context.WithTimeout(w.ctx, nextTimeout)
	defer cancel()
	cmd := redis.NewMapStringInterfaceSliceCmd(ctx, "simba.next", name, d.Milliseconds())
	_ = w.rdb.Process(ctx, once{cmd}) // cmd has the error
	return cmd.Result()
}

// collect waits for the next outcomes, and delivers them.
func (w *waits) collect(name string) error {
	list, err := w.next(name, nextWait)
	if err != nil {
		return err
	}
	for _, values := range list {
		r := record{values: values}
		var o outcome
		if text, failed := values["error"].(string); failed {
			o.err = requestError(replyError(text))
		} else if o.reply, o.err = readReply(values); o.err != nil {
			return o.err
		}
		n := uint64(r.number("request"))
		w.mu.Lock()
		one := w.all[n]
		if one != nil {
			delete(w.all, n) // the first outcome counts
			one.outcome <- o
			w.used = time.Now()
		}
		w.mu.Unlock()
		if one == nil && o.reply.status == statusAcquired {
			w.c.giveBack(r.text("mutex"), o.reply)
		}
	}
	return nil
}

// giveBack releases a tenure that nobody waits for any more. A contender that still asks learns of
// the tenure by its next request.
func (c *Client) giveBack(mutex string, r reply) {
	if !c.contenders.owns(mutex, r.owner, r.token) {
		go func() {
			t := &terms{mutex: mutex, id: r.owner}
			if _, err := c.release(context.Background(), t, r.token, via{}, false); refused(err) { // the lease will end
				c.noteFailure(t, err, true)
			}
		}()
	}
}

// replyError is an error reply in an outcome.
type replyError string

func (e replyError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (replyError) RedisError() {}

func (w *waits) close() {
	w.mu.Lock()
	w.closed = true
	w.end() // ends a dial
	if w.opened != nil {
		_ = w.rdb.Close() // ends a NEXT that blocks
	}
	w.mu.Unlock()
	w.running.Wait()
}
