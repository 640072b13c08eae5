package client

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// connChannels is the largest number of channels of one connection. The server allows 10,000.
const connChannels = 8192

// notice is a message of a channel, or the confirmation or refusal of a new subscription.
type notice struct {
	channel, payload string
	subscribed       bool // no message: the listener may have missed earlier messages
}

// listener receives the notices of channels. Each connection calls notify for one notice at a time.
// notify must not block.
type listener struct {
	notify   func(notice)
	channels []string
}

// subscriptions are the channels that a Client subscribes to, with their listeners. The first
// listener opens a connection. A connection without listeners is closed after idleAfter.
type subscriptions struct {
	rdb     redis.UniversalClient
	log     *slog.Logger
	denied  atomic.Bool    // the server refuses SUBSCRIBE
	running sync.WaitGroup // goroutines of the connections

	mu     sync.Mutex // guards what follows, and the channels of the connections
	conns  []*subscriberConn
	closed bool
}

func newSubscriptions(rdb redis.UniversalClient, log *slog.Logger) *subscriptions {
	return &subscriptions{rdb: rdb, log: log}
}

// refused reports whether the server refuses SUBSCRIBE. So no notices come.
func (s *subscriptions) refused() bool { return s.denied.Load() }

// noteRefusal logs the first refusal. It wakes the listeners, which otherwise wait for notices that do
// not come.
func (s *subscriptions) noteRefusal(err error) {
	if !refused(err) || s.denied.Swap(true) {
		return
	}
	s.log.Error("the server refuses SUBSCRIBE: waiters poll, and an owner learns of a BREAK when it renews", "err", err)
	var all []*listener
	s.mu.Lock()
	for _, conn := range s.conns {
		for _, ch := range conn.channels {
			all = append(all, ch.listeners...)
		}
	}
	s.mu.Unlock()
	for _, l := range all {
		l.notify(notice{subscribed: true})
	}
}

// add adds a listener. For each channel, the listener gets a notice when the subscription is
// confirmed, possibly before add returns.
func (s *subscriptions) add(notify func(notice), channels ...string) *listener {
	l := &listener{notify: notify, channels: channels}
	s.mu.Lock()
	var subscribed []string
	for _, name := range channels {
		conn := s.connLocked(name)
		if conn == nil { // the subscriptions are closed
			break
		}
		ch := conn.channels[name]
		if ch == nil {
			ch = &channel{}
			conn.channels[name] = ch
		}
		ch.listeners = append(ch.listeners, l)
		if ch.confirmed {
			subscribed = append(subscribed, name)
		}
		conn.changedLocked(name)
	}
	s.mu.Unlock()
	for _, name := range subscribed {
		notify(notice{channel: name, subscribed: true})
	}
	return l
}

// remove removes a listener. The listener may still get notices that are being delivered.
func (s *subscriptions) remove(l *listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range l.channels {
		for _, conn := range s.conns {
			ch := conn.channels[name]
			if ch == nil {
				continue
			}
			if i := slices.Index(ch.listeners, l); i >= 0 {
				ch.listeners = slices.Delete(ch.listeners, i, i+1)
				conn.changedLocked(name)
			}
		}
	}
}

// connLocked returns the connection that has the channel, else one that has room for it, else a new
// one. It returns nil if the subscriptions are closed.
func (s *subscriptions) connLocked(name string) *subscriberConn {
	if s.closed {
		return nil
	}
	var room *subscriberConn
	for _, conn := range s.conns {
		if conn.channels[name] != nil {
			return conn
		}
		if room == nil && len(conn.channels) < connChannels {
			room = conn
		}
	}
	if room == nil {
		room = newSubscriberConn(s)
		s.conns = append(s.conns, room)
		s.running.Go(room.run)
	}
	return room
}

// close ends all connections and waits for their goroutines.
func (s *subscriptions) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		for _, conn := range s.conns {
			conn.close()
		}
	}
	s.mu.Unlock()
	s.running.Wait()
}
