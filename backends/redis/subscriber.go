package redis

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

const minReconnectPause, maxReconnectPause = 10 * time.Millisecond, 500 * time.Millisecond

// subscriber is the pub/sub connection to one node. If the connection breaks, it reconnects and
// subscribes again. It receives by redis.PubSub.ReceiveTimeout, because redis.PubSub.Channel drops
// messages that arrive fast. Safe for concurrent use.
type subscriber struct {
	subs    *subscriptions
	client  *redis.Client
	stop    context.CancelFunc
	changes chan struct{} // capacity 1: signals new elements of changed

	mu       sync.Mutex // guards the fields below
	channels map[string]*subscription
	changed  []string // channels to subscribe to, or to unsubscribe from
	lastErr  error    // why the last connection ended, or with which the node has refused a subscription since
}

// subscription is a channel, or a glob of channels, that the server wants to receive.
type subscription struct {
	confirmed chan struct{} // closed when the node has confirmed it
	again     bool          // the server was subscribed before, so that messages may have been lost meanwhile
	wantedAt  time.Time     // the last call of subscribe
}

func (s *subscription) isConfirmed() bool {
	select {
	case <-s.confirmed:
		return true
	default:
		return false
	}
}

// subscribe subscribes to a channel, unless it is subscribed already. The returned Go channel
// closes when the node has confirmed the subscription. If the connection ends after that, later
// calls return a new Go channel. again says that the server was subscribed at another node.
func (s *subscriber) subscribe(name string, again bool) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.channels[name]
	if sub == nil {
		sub = &subscription{confirmed: make(chan struct{}), again: again}
		s.channels[name] = sub
		s.changeLocked(name)
	}
	sub.wantedAt = time.Now()
	return sub.confirmed
}

func (s *subscriber) unsubscribe(name string) {
	s.sweep(time.Now().Add(time.Hour), func(n string) bool { return n != name })
}

// sweep unsubscribes from the channels that were last wanted before an instant, and that are not
// needed.
func (s *subscriber) sweep(before time.Time, needed func(name string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, sub := range s.channels {
		if sub.wantedAt.Before(before) && !needed(name) {
			delete(s.channels, name)
			s.changeLocked(name)
		}
	}
}

func (s *subscriber) changeLocked(names ...string) {
	s.changed = append(s.changed, names...)
	proxy.Wake(s.changes)
}

// await waits for the confirmation of a subscription, until ctx ends.
func (s *subscriber) await(ctx context.Context, confirmed <-chan struct{}) error {
	select {
	case <-confirmed:
		return nil
	case <-ctx.Done():
	}
	if err := s.err(); err != nil {
		return err
	}
	return fmt.Errorf("the node has not confirmed a subscription: %w", ctx.Err())
}

func (s *subscriber) confirmed(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.channels[name]
	return sub != nil && sub.isConfirmed()
}

func (s *subscriber) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.channels))
}

func (s *subscriber) err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}

func (s *subscriber) setErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
}

// run connects, and reconnects when the connection breaks, until ctx ends.
func (s *subscriber) run(ctx context.Context) {
	delay := minReconnectPause
	for ctx.Err() == nil {
		began := time.Now()
		s.setErr(s.runConnection(ctx))
		if time.Since(began) > time.Second {
			delay = minReconnectPause
		}
		proxy.Sleep(ctx, delay, nil)
		delay = min(2*delay, maxReconnectPause)
	}
}

func (s *subscriber) runConnection(ctx context.Context) error {
	ps := s.client.Subscribe(ctx) // does not connect yet
	connecting, cancel := context.WithTimeout(ctx, s.subs.timeout)
	err := ps.Ping(connecting) // connects
	cancel()
	if err != nil {
		_ = ps.Close()
		return err
	}
	ctx, disconnect := context.WithCancelCause(ctx)
	s.connected()
	context.AfterFunc(ctx, func() { _ = ps.Close() }) // ends the read
	var writer sync.WaitGroup
	writer.Go(func() { disconnect(s.write(ctx, ps)) })
	// The next connection does not wait for this probe, whose publish may take long.
	s.subs.b.Go(func() { disconnect(s.probe(ctx)) })
	disconnect(s.read(ps)) // the first cause stands
	s.disconnected()
	writer.Wait() // otherwise it could take changes from the writer of the next connection
	return context.Cause(ctx)
}

// connected notes that there is a connection, on which all channels must be subscribed.
func (s *subscriber) connected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = nil
	// The grants on the server's own channel are the most urgent messages.
	s.changed = append([]string{s.subs.serverChannel()}, slices.Collect(maps.Keys(s.channels))...)
}

func (s *subscriber) disconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.channels {
		if sub.isConfirmed() {
			sub.confirmed, sub.again = make(chan struct{}), true
		}
	}
}

// write sends changes of the subscriptions, and PING at regular intervals.
func (s *subscriber) write(ctx context.Context, ps *redis.PubSub) error {
	ping := time.NewTicker(s.subs.timeout / 3)
	defer ping.Stop()
	for {
		if err := s.sendChanges(ps); err != nil {
			return err
		}
		select {
		case <-s.changes:
		case <-ping.C:
			if err := ps.Ping(endedContext); err != nil {
				return err
			}
			s.retryRefused()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retryRefused subscribes again to the channels that the node has refused, because rights may
// change.
func (s *subscriber) retryRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastErr == nil {
		return
	}
	for name, sub := range s.channels {
		if !sub.isConfirmed() {
			s.changed = append(s.changed, name)
		}
	}
}

// sendChanges sends a command for each changed channel, so that a refusal concerns no other one.
func (s *subscriber) sendChanges(ps *redis.PubSub) error {
	for {
		s.mu.Lock()
		if len(s.changed) == 0 {
			s.mu.Unlock()
			return nil
		}
		name := s.changed[0]
		s.changed = s.changed[1:]
		wanted := s.channels[name] != nil
		s.mu.Unlock()
		names := []string{name}
		if servers := serversChannel(name); servers != "" {
			// The server has both whenever it has name, so that no script counts it as another program.
			names = []string{servers, name}
			if !wanted {
				slices.Reverse(names)
			}
		}
		send := ps.Unsubscribe
		switch glob := isServerGlob(name); {
		case wanted && glob:
			send = ps.PSubscribe
		case wanted:
			send = ps.Subscribe
		case glob:
			send = ps.PUnsubscribe
		}
		for _, n := range names {
			if err := send(endedContext, n); err != nil {
				return err
			}
		}
	}
}

const serversPrefix = "simba-servers:"

// serversChannel returns the channel to which a server subscribes with the channel of a mutex, ""
// for other channels. By the numbers of subscribers of both, a script finds those that are not
// servers of ours: see openToOutsiders in lua/waiters.lua. On it scripts publish what only servers
// must learn.
func serversChannel(channel string) string {
	if _, ok := simba.ParseMutexChannel(channel); ok {
		return serversPrefix + strings.TrimPrefix(channel, "simba:")
	}
	return ""
}

func (s *subscriber) read(ps *redis.PubSub) error {
	for {
		got, err := ps.ReceiveTimeout(endedContext, s.subs.timeout)
		var refusal redis.Error
		switch late := net.Error(nil); {
		case err == nil:
		case errors.As(err, &refusal) && redis.HasErrorPrefix(err, "NOPERM"):
			if !strings.Contains(err.Error(), "'ping'") { // the node lives if it refuses PING
				s.setErr(err)
			}
			continue
		case errors.As(err, &late) && late.Timeout():
			return errors.New("the node's pub/sub connection does not answer")
		default:
			return err
		}
		switch m := got.(type) {
		case *redis.Message:
			s.subs.onMessage(m)
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "psubscribe" {
				s.onSubscribed(m.Channel)
			}
		}
	}
}

func (s *subscriber) onSubscribed(name string) {
	s.mu.Lock()
	sub := s.channels[name]
	isNew := sub != nil && !sub.isConfirmed()
	again := isNew && sub.again
	if isNew {
		close(sub.confirmed)
	}
	s.mu.Unlock()
	if isNew {
		s.subs.onConfirmed(name, again)
	}
}

// errOtherNode is why a subscriber closes a connection that still answers.
var errOtherNode = errors.New("the pub/sub connection is not at the node that commands go to")

// probe publishes an empty message to the server's own channel at regular intervals, at the node
// that commands go to. It returns an error when nobody has received the message, or when ctx ends.
// After a failover a connection may stay at the old primary, which still answers PING.
func (s *subscriber) probe(ctx context.Context) error {
	own := s.subs.serverChannel()
	for proxy.Sleep(ctx, min(s.subs.timeout/3, time.Second), nil) {
		if !s.confirmed(own) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, s.subs.timeout)
		n, err := s.subs.b.up.eval(limited, s.client, subscriberCountLua, own).Int()
		cancel()
		if err == nil && n == 0 {
			return errOtherNode
		}
	}
	return ctx.Err()
}
