package client

import (
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"
)

// connChannels is how many channels one connection subscribes to. The server allows 10,000
// subscriptions.
const connChannels = 8192

// notice is a message of a channel, or a confirmation that the channel is subscribed to.
type notice struct {
	channel, payload string
	subscribed       bool // no message: the subscription begins, earlier messages may be missed
}

// listener receives the notices of channels. notify is called for one notice at a time for each
// connection, and must not block.
type listener struct {
	notify   func(notice)
	channels []string
}

// subscriptions are the channels that a Client subscribes to, with their listeners. There is no
// connection and no goroutine while there is no listener.
type subscriptions struct {
	rdb     redis.UniversalClient
	running sync.WaitGroup // goroutines of the connections

	mu     sync.Mutex // guards what follows, and the channels of the connections
	conns  []*subscriberConn
	closed bool
}

func newSubscriptions(rdb redis.UniversalClient) *subscriptions { return &subscriptions{rdb: rdb} }

// add adds a listener. It gets a notice for each channel when the channel is subscribed to,
// possibly before add returns.
func (s *subscriptions) add(notify func(notice), channels ...string) *listener {
	l := &listener{notify: notify, channels: channels}
	s.mu.Lock()
	var subscribed []string
	for _, name := range channels {
		conn := s.connLocked(name)
		if conn == nil { // closed
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

// remove removes a listener. It may still get notices that are being delivered.
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

// connLocked returns the connection for a channel: that which has it, one that has room, or a new
// one.
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
