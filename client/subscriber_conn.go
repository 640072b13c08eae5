package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// batchChannels is the largest number of channels in one SUBSCRIBE. The server allows 1,024
	// arguments.
	batchChannels = 512
	// pingEvery is the time between two PINGs. If the server has sent nothing since the last PING,
	// the connection is replaced.
	pingEvery = 3 * time.Second
	// redialPause is the first pause between two attempts to connect. The pause doubles with each
	// attempt, up to redialPauseMax.
	redialPause    = 50 * time.Millisecond
	redialPauseMax = 2 * time.Second
	// subscriberTimeout bounds a command on a subscriber's connection.
	subscriberTimeout = 3 * time.Second
)

// subscriberConn is one subscriber's connection, on which the server sends notices. It connects
// again when the connection breaks.
type subscriberConn struct {
	s *subscriptions

	// Guarded by subscriptions.mu.
	channels map[string]*channel
	changed  map[string]struct{} // channels whose listeners were added or removed

	wake  chan struct{}   // has an element when changed is not empty
	quit  context.Context // ends when close is called
	close context.CancelFunc
}

// channel is the state of a channel. It may have lost its last listener.
type channel struct {
	listeners []*listener
	requested bool // SUBSCRIBE was sent on the present connection
	confirmed bool // the server has confirmed the subscription
}

func newSubscriberConn(s *subscriptions) *subscriberConn {
	c := &subscriberConn{
		s: s, channels: make(map[string]*channel), changed: make(map[string]struct{}),
		wake: make(chan struct{}, 1),
	}
	c.quit, c.close = context.WithCancel(context.Background())
	return c
}

func (c *subscriberConn) changedLocked(name string) {
	c.changed[name] = struct{}{}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run keeps the connection as long as there are listeners.
func (c *subscriberConn) run() {
	pause := redialPause
	for {
		if c.connect() {
			pause = redialPause
		}
		if c.removeIfIdle() {
			return
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, redialPauseMax)
		case <-c.quit.Done():
			return
		}
	}
}

// removeIfIdle removes the connection from the subscriptions if it has no listeners. It reports
// whether it has removed the connection.
func (c *subscriberConn) removeIfIdle() bool {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, ch := range c.channels {
		if len(ch.listeners) != 0 {
			return false
		}
	}
	c.s.conns = slices.DeleteFunc(c.s.conns, func(o *subscriberConn) bool { return o == c })
	return true
}

// connect makes a connection and uses it until it breaks, has been idle for idleAfter, or close is
// called. It returns true if the connection has received something or was idle.
func (c *subscriberConn) connect() (received bool) {
	ps := c.s.rdb.Subscribe(context.Background()) // connects with the first SUBSCRIBE
	c.reset()
	news := make(chan struct{}, 1)
	broken := make(chan struct{})
	receiving := false
	defer func() {
		_ = ps.Close()
		if receiving {
			<-broken
		}
	}()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	alive, emptySince := true, time.Time{}
	for {
		n, err := c.update(ps)
		if err != nil {
			return received
		}
		switch {
		case n != 0:
			emptySince = time.Time{}
		case emptySince.IsZero():
			emptySince = time.Now()
		}
		if n != 0 && !receiving { // not earlier: without a channel, Receive would connect by itself
			receiving = true
			go c.receive(ps, news, broken)
		}
		select {
		case <-c.wake:
		case <-news:
			received, alive = true, true
		case <-ping.C:
			if n == 0 && time.Since(emptySince) >= idleAfter {
				return true
			}
			if receiving && (!alive || !c.ping(ps)) {
				return received
			}
			alive = false
		case <-broken:
			return received
		case <-c.quit.Done():
			return received
		}
	}
}

func (c *subscriberConn) ping(ps *redis.PubSub) bool {
	ctx, cancel := context.WithTimeout(c.quit, subscriberTimeout)
	defer cancel()
	return ps.Ping(ctx) == nil
}

// reset marks all channels as not subscribed to, for a new connection.
func (c *subscriberConn) reset() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for name, ch := range c.channels {
		if len(ch.listeners) == 0 {
			delete(c.channels, name)
			continue
		}
		ch.requested, ch.confirmed = false, false
		c.changedLocked(name)
	}
}

// update subscribes to the channels that have got their first listener, and unsubscribes from those
// that have lost their last one. n is the number of channels with listeners.
func (c *subscriberConn) update(ps *redis.PubSub) (n int, err error) {
	var on, off []string
	c.s.mu.Lock()
	for name := range c.changed {
		ch := c.channels[name]
		switch {
		case ch == nil:
		case len(ch.listeners) != 0 && !ch.requested:
			ch.requested = true
			on = append(on, name)
		case len(ch.listeners) == 0:
			delete(c.channels, name)
			if ch.requested {
				off = append(off, name)
			}
		}
	}
	clear(c.changed)
	n = len(c.channels)
	c.s.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.quit, subscriberTimeout)
	defer cancel()
	for batch := range slices.Chunk(off, batchChannels) {
		err = errors.Join(err, ps.Unsubscribe(ctx, batch...))
	}
	for batch := range slices.Chunk(on, batchChannels) {
		err = errors.Join(err, ps.Subscribe(ctx, batch...))
	}
	return n, err
}

// receive delivers notices until the connection breaks. It calls Receive of go-redis with a context
// that has ended. Receive still reads, but does not connect again when the connection breaks.
// Otherwise Close of the connection would have to wait for Receive.
func (c *subscriberConn) receive(ps *redis.PubSub, news chan<- struct{}, broken chan<- struct{}) {
	defer close(broken)
	ended, end := context.WithCancel(context.Background())
	end()
	for {
		m, err := ps.Receive(ended)
		if err != nil {
			c.s.noteRefusal(err)
			return
		}
		c.s.denied.Store(false)
		select {
		case news <- struct{}{}:
		default:
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				c.deliver(notice{channel: m.Channel, subscribed: true})
			}
		case *redis.Message:
			c.deliver(notice{channel: m.Channel, payload: m.Payload})
		}
	}
}

// deliver passes a notice to the listeners of its channel.
func (c *subscriberConn) deliver(n notice) {
	c.s.mu.Lock()
	var listeners []*listener
	if ch := c.channels[n.channel]; ch != nil {
		if n.subscribed && ch.requested {
			ch.confirmed = true
		}
		listeners = slices.Clone(ch.listeners)
	}
	c.s.mu.Unlock()
	for _, l := range listeners {
		l.notify(n)
	}
}
