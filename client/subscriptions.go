package client

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxChannels is how many channels a Client subscribes to. The server allows 10,000.
	maxChannels = 8192
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
	// subscriberTimeout bounds a command on the subscriber's connection.
	subscriberTimeout = 3 * time.Second
)

// notice is a message of a channel, or the confirmation or refusal of a new subscription.
type notice struct {
	channel, payload string
	subscribed       bool // no message: the listener may have missed earlier messages
}

// listener receives the notices of channels. notify may be called at the same time from several
// goroutines, and must not block.
type listener struct {
	notify   func(notice)
	channels []string
	unheard  bool // there were too many channels: it gets no notices of some of its own
}

// subscriptions are the channels that a Client subscribes to, with their listeners. They share one
// connection. The first listener opens it, and it is closed when there was none for idleAfter. It
// is opened again when it breaks. Safe for concurrent use.
type subscriptions struct {
	rdb     redis.UniversalClient
	log     *slog.Logger
	denied  atomic.Bool    // the server refuses SUBSCRIBE
	running sync.WaitGroup // the goroutine of run
	wake    chan struct{}  // has an element when changed is not empty
	quit    context.Context
	end     context.CancelFunc

	mu        sync.Mutex // guards what follows
	runs      bool
	listeners map[string][]*listener // by channel
	changed   map[string]struct{}    // channels that have got their first listener, or lost their last
}

func newSubscriptions(rdb redis.UniversalClient, log *slog.Logger) *subscriptions {
	s := &subscriptions{
		rdb: rdb, log: log, wake: make(chan struct{}, 1),
		listeners: make(map[string][]*listener), changed: make(map[string]struct{}),
	}
	s.quit, s.end = context.WithCancel(context.Background())
	return s
}

// misses reports whether a listener gets no notices.
func (s *subscriptions) misses(l *listener) bool { return l.unheard || s.denied.Load() }

// add adds a listener. For each channel, the listener gets a notice when the subscription is
// confirmed. If another listener has the channel already, it gets one before add returns.
func (s *subscriptions) add(notify func(notice), channels ...string) *listener {
	l := &listener{notify: notify, channels: channels}
	var shared []string
	s.mu.Lock()
	for _, name := range channels {
		switch all := s.listeners[name]; {
		case len(all) != 0:
			shared = append(shared, name)
		case len(s.listeners) >= maxChannels:
			l.unheard = true
			continue
		default:
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

// remove removes a listener. The listener may still get notices that are being delivered.
func (s *subscriptions) remove(l *listener) {
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
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// close ends the connection and waits for its goroutines.
func (s *subscriptions) close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.running.Wait()
}

// run keeps the connection as long as there are listeners.
func (s *subscriptions) run() {
	for pause := redialPause; ; pause = min(2*pause, redialPauseMax) {
		if s.connect() {
			pause = redialPause
		}
		s.mu.Lock()
		s.runs = len(s.listeners) != 0 && s.quit.Err() == nil
		goesOn := s.runs
		s.mu.Unlock()
		if !goesOn {
			return
		}
		select {
		case <-time.After(pause):
		case <-s.quit.Done():
		}
	}
}

// connect makes a connection and uses it until it breaks, has been idle for idleAfter, or close is
// called. It returns true if the connection has received something or was idle.
func (s *subscriptions) connect() (received bool) {
	ps := s.rdb.Subscribe(context.Background()) // connects with the first SUBSCRIBE
	s.mu.Lock()
	for name := range s.listeners {
		s.changeLocked(name)
	}
	s.mu.Unlock()
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
	requested := make(map[string]bool) // the channels of this connection
	used, alive := time.Now(), true
	for {
		if err := s.update(ps, requested); err != nil {
			return received
		}
		if len(requested) != 0 {
			used = time.Now()
			if !receiving { // not earlier: without a channel, Receive would connect by itself
				receiving = true
				go s.receive(ps, news, broken)
			}
		}
		select {
		case <-s.wake:
		case <-news:
			received, alive = true, true
		case <-ping.C:
			if time.Since(used) >= idleAfter {
				return true
			}
			if receiving && (!alive || !s.ping(ps)) {
				return received
			}
			alive = false
		case <-broken:
			return received
		case <-s.quit.Done():
			return received
		}
	}
}

func (s *subscriptions) ping(ps *redis.PubSub) bool {
	ctx, cancel := context.WithTimeout(s.quit, subscriberTimeout)
	defer cancel()
	return ps.Ping(ctx) == nil
}

// update subscribes to the channels that have got their first listener, and unsubscribes from those
// that have lost their last one.
func (s *subscriptions) update(ps *redis.PubSub, requested map[string]bool) (err error) {
	var on, off, kept []string
	s.mu.Lock()
	for name := range s.changed {
		switch wanted := len(s.listeners[name]) != 0; {
		case wanted && requested[name]: // a listener has followed the last one
			kept = append(kept, name)
		case wanted:
			requested[name] = true
			on = append(on, name)
		case requested[name]:
			delete(requested, name)
			off = append(off, name)
		}
	}
	clear(s.changed)
	s.mu.Unlock()
	for _, name := range kept {
		s.deliver(notice{channel: name, subscribed: true})
	}
	ctx, cancel := context.WithTimeout(s.quit, subscriberTimeout)
	defer cancel()
	for batch := range slices.Chunk(off, batchChannels) {
		err = errors.Join(err, ps.Unsubscribe(ctx, batch...))
	}
	for batch := range slices.Chunk(on, batchChannels) {
		err = errors.Join(err, ps.Subscribe(ctx, batch...))
	}
	return err
}

// receive delivers notices until the connection breaks. It calls Receive of go-redis with a context
// that has ended. Receive still reads, but does not connect again when the connection breaks.
// Otherwise Close of the connection would have to wait for Receive.
func (s *subscriptions) receive(ps *redis.PubSub, news chan<- struct{}, broken chan<- struct{}) {
	defer close(broken)
	ended, end := context.WithCancel(context.Background())
	end()
	for {
		m, err := ps.Receive(ended)
		if err != nil {
			s.noteRefusal(err)
			return
		}
		s.denied.Store(false)
		select {
		case news <- struct{}{}:
		default:
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
// not come.
func (s *subscriptions) noteRefusal(err error) {
	if !refused(err) || s.denied.Swap(true) {
		return
	}
	s.log.Error("the server refuses SUBSCRIBE: waiters poll, and an owner learns of a BREAK when it renews", "err", err)
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
