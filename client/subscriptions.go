package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// batchChannels is how many channels one SUBSCRIBE has. The server allows 1 MiB for a command.
	batchChannels = 512
	// pingEvery is the time between two PINGs. If the server has sent nothing for twice that time,
	// the connection is replaced.
	pingEvery = 3 * time.Second
	// redialPause is the first pause between two attempts to connect. The pause doubles with each
	// attempt, up to retryPauseMax.
	redialPause = 50 * time.Millisecond
)

// notice is a message of a channel, or the confirmation of a new subscription. Without a channel it is
// the refusal of one.
type notice struct {
	channel, payload string
	subscribed       bool // no message: the listener may have missed earlier messages
}

// listener receives the notices of channels. notify may be called at the same time from several
// goroutines, and must not block.
type listener struct {
	notify   func(notice)
	channels []string
}

// subscriptions are the channels that a Client subscribes to, with their listeners. They share one
// connection. The first listener opens it, and it is opened again when it breaks. Safe for
// concurrent use.
type subscriptions struct {
	c       *Client
	denied  atomic.Bool    // the server has refused a SUBSCRIBE since the last PING
	logged  atomic.Bool    // the first refusal is logged
	running sync.WaitGroup // the goroutine of run
	wake    chan struct{}  // has an element when changed is not empty
	quit    context.Context
	end     context.CancelFunc

	mu        sync.Mutex // guards what follows
	runs      bool
	listeners map[string][]*listener // by channel
	changed   map[string]struct{}    // channels that have got their first listener, or lost their last
}

func newSubscriptions(c *Client) *subscriptions {
	s := &subscriptions{
		c: c, wake: make(chan struct{}, 1),
		listeners: make(map[string][]*listener), changed: make(map[string]struct{}),
	}
	s.quit, s.end = context.WithCancel(context.Background())
	return s
}

// add adds a listener. For each channel, the listener gets a notice when the subscription is
// confirmed. If another listener has the channel already, it gets one before add returns.
func (s *subscriptions) add(notify func(notice), channels ...string) *listener {
	l := &listener{notify: notify, channels: channels}
	var shared []string
	s.mu.Lock()
	for _, name := range channels {
		if len(s.listeners[name]) != 0 {
			shared = append(shared, name)
		} else {
			s.changeLocked(name)
		}
		s.listeners[name] = append(s.listeners[name], l)
	}
	if !s.runs && s.quit.Err() == nil {
		s.runs = true
		s.running.Go(s.run)
	}
	s.mu.Unlock()
	for _, name := range shared {
		notify(notice{channel: name, subscribed: true})
	}
	return l
}

// remove removes a listener; nil = none. The listener may still get notices that are being delivered.
func (s *subscriptions) remove(l *listener) {
	if l == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range l.channels {
		i := slices.Index(s.listeners[name], l)
		if i < 0 {
			continue
		}
		s.listeners[name] = slices.Delete(s.listeners[name], i, i+1)
		if len(s.listeners[name]) == 0 {
			delete(s.listeners, name)
			s.changeLocked(name)
		}
	}
}

func (s *subscriptions) changeLocked(name string) {
	s.changed[name] = struct{}{}
	poke(s.wake)
}

// close ends the connection and waits for its goroutines.
func (s *subscriptions) close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.running.Wait()
}

// run keeps a connection until the Client is closed.
func (s *subscriptions) run() {
	var err error
	for pause := redialPause; err == nil; pause = min(2*pause, retryPauseMax) {
		began := time.Now()
		s.connect()
		if time.Since(began) > pingEvery {
			pause = redialPause
		}
		err = s.c.sleep(s.quit, pause, nil)
	}
}

// connect makes a connection and uses it until it breaks, or close is called.
func (s *subscriptions) connect() {
	ps := s.c.rdb.Subscribe(s.quit) // connects with the first SUBSCRIBE
	s.changeAll()
	var broken chan struct{} // nil = there is no connection yet
	defer func() {
		_ = ps.Close()
		if broken != nil {
			<-broken
		}
	}()
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		n, err := s.update(ps)
		if err != nil {
			return
		}
		if broken == nil && n != 0 { // not earlier: without a channel, receive would connect by itself
			broken = make(chan struct{})
			go s.receive(ps, broken)
		}
		select {
		case <-s.wake:
		case <-ping.C:
			if broken == nil {
				break
			}
			ctx, cancel := context.WithTimeout(s.quit, s.c.timeout)
			err := ps.Ping(ctx)
			cancel()
			if err != nil {
				return
			}
			if s.denied.Swap(false) { // try once more
				s.changeAll()
			}
		case <-broken:
			return
		case <-s.quit.Done():
			return
		}
	}
}

// changeAll makes update subscribe to all channels.
func (s *subscriptions) changeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.changed) // a channel that nobody wants any more does no harm
	for name := range s.listeners {
		s.changeLocked(name)
	}
}

// update subscribes to the channels that have got their first listener, and unsubscribes from those
// that have lost their last one. It returns how many have a listener.
func (s *subscriptions) update(ps *redis.PubSub) (n int, err error) {
	var on, off []string
	s.mu.Lock()
	for name := range s.changed {
		if len(s.listeners[name]) != 0 {
			on = append(on, name)
		} else {
			off = append(off, name)
		}
	}
	clear(s.changed)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.quit, s.c.timeout)
	defer cancel()
	for batch := range slices.Chunk(off, batchChannels) {
		err = errors.Join(err, ps.Unsubscribe(ctx, batch...))
	}
	for batch := range slices.Chunk(on, batchChannels) {
		err = errors.Join(err, ps.Subscribe(ctx, batch...))
	}
	return len(on), err
}

// receive delivers notices until the connection breaks or is silent. It gives go-redis a context that
// has ended. So go-redis still reads, but does not connect again when the connection breaks. Otherwise
// Close of the connection would have to wait for receive.
func (s *subscriptions) receive(ps *redis.PubSub, broken chan<- struct{}) {
	defer close(broken)
	ended, end := context.WithCancel(context.Background())
	end()
	for {
		m, err := ps.ReceiveTimeout(ended, 2*pingEvery)
		if reply := redis.Error(nil); errors.As(err, &reply) {
			s.noteRefusal(err)
		} else if err != nil {
			return
		}
		switch m := m.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				s.deliver(notice{channel: m.Channel, subscribed: true})
			}
		case *redis.Message:
			s.deliver(notice{channel: m.Channel, payload: m.Payload})
		}
	}
}

// noteRefusal logs the first refusal. It wakes the listeners, which otherwise wait for notices that do
// not come, unless an earlier refusal has.
func (s *subscriptions) noteRefusal(err error) {
	if s.denied.Swap(true) {
		return
	}
	if !s.logged.Swap(true) {
		s.c.log.Error("the server refuses SUBSCRIBE: waiters poll, and an owner learns of a BREAK when it renews", "err", err)
	}
	s.mu.Lock()
	all := slices.Concat(slices.Collect(maps.Values(s.listeners))...)
	s.mu.Unlock()
	for _, l := range all {
		l.notify(notice{subscribed: true})
	}
}

// deliver passes a notice to the listeners of its channel.
func (s *subscriptions) deliver(n notice) {
	s.mu.Lock()
	all := slices.Clone(s.listeners[n.channel])
	s.mu.Unlock()
	for _, l := range all {
		l.notify(n)
	}
}
