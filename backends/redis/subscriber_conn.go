package redis

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
)

// The connection of a subscriber: one goroutine reads, one writes.

const (
	minReconnectPause = 10 * time.Millisecond
	maxReconnectPause = 500 * time.Millisecond
)

// run connects, and reconnects when the connection breaks, until ctx ends.
func (s *subscriber) run(ctx context.Context) {
	delay := minReconnectPause
	for ctx.Err() == nil {
		began := time.Now()
		err := s.runConnection(ctx)
		if err != nil && ctx.Err() == nil {
			s.mu.Lock()
			s.lastErr = err
			s.mu.Unlock()
		}
		if time.Since(began) > time.Second {
			delay = minReconnectPause
		}
		pause(ctx, delay)
		delay = min(2*delay, maxReconnectPause)
	}
}

func (s *subscriber) runConnection(ctx context.Context) error {
	ps := s.client.Subscribe(ctx) // does not connect yet
	defer func() { _ = ps.Close() }()
	defer s.markDisconnected()
	connectCtx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.connect(connectCtx, ps); err != nil {
		return err
	}
	conn, disconnect := context.WithCancelCause(ctx)
	s.mu.Lock()
	s.disconnect = disconnect
	s.mu.Unlock()
	var writer sync.WaitGroup
	writer.Go(func() {
		s.write(conn, ps)
		_ = ps.Close() // ends the read
	})
	err := s.read(conn, ps)
	disconnect(err) // the first cause stands
	writer.Wait()
	return context.Cause(conn)
}

func (s *subscriber) connect(ctx context.Context, ps *redis.PubSub) error {
	if err := ps.Ping(ctx); err != nil { // connects
		return err
	}
	s.mu.Lock()
	s.lastErr = nil // of an earlier connection
	s.toSubscribe, s.toUnsubscribe, s.unanswered, s.oneByOne, s.refused = nil, nil, nil, false, nil
	for name, sub := range s.channels {
		sub.initial = true
		sub.interruptions++
		s.toSubscribe = append(s.toSubscribe, name)
	}
	s.awaited = len(s.channels)
	s.connects++
	probe := s.probeChannelLocked()
	s.unanswered = append(s.unanswered, subscribeCommand{[]string{probe}, 1})
	s.mu.Unlock()
	if err := ps.Subscribe(endedContext, probe); err != nil {
		return err
	}
	return s.sendChanges(ps)
}

// markDisconnected notes that the connection has ended.
func (s *subscriber) markDisconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probe, s.disconnect = "", nil
	for _, sub := range s.channels {
		if sub.isConfirmed {
			sub.confirmed, sub.isConfirmed = make(chan struct{}), false
		}
	}
}

// write sends changes of the subscriptions, and PING at regular intervals.
func (s *subscriber) write(ctx context.Context, ps *redis.PubSub) {
	ping := time.NewTicker(s.timeout / 3)
	defer ping.Stop()
	for {
		var err error
		select {
		case <-s.changes:
			err = s.sendChanges(ps)
		case <-ping.C:
			err = ps.Ping(endedContext)
			s.retryRefused()
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
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

// maxChannelsPerCommand bounds a SUBSCRIBE or UNSUBSCRIBE.
const maxChannelsPerCommand = 1000

func (s *subscriber) sendChanges(ps *redis.PubSub) error {
	var exact, globs, gone, goneGlobs []string
	s.mu.Lock()
	for _, name := range s.toUnsubscribe {
		if s.channels[name] != nil {
			continue // wanted again
		}
		if isServerGlob(name) {
			goneGlobs = append(goneGlobs, name)
		} else {
			gone = append(gone, name)
			if servers := serversChannel(name); servers != "" {
				gone = append(gone, servers)
			}
		}
	}
	for _, name := range s.toSubscribe {
		switch sub := s.channels[name]; {
		case sub == nil:
		case sub.pattern:
			globs = append(globs, name)
		default:
			// First, so that no script counts this server as another program.
			if servers := serversChannel(name); servers != "" {
				exact = append(exact, servers)
			}
			exact = append(exact, name)
		}
	}
	s.toSubscribe, s.toUnsubscribe = nil, nil
	most := maxChannelsPerCommand
	if s.oneByOne {
		most = 1
	}
	s.mu.Unlock()

	for _, step := range []struct {
		names     []string
		subscribe bool
		send      func(context.Context, ...string) error
	}{{gone, false, ps.Unsubscribe}, {goneGlobs, false, ps.PUnsubscribe}, {exact, true, ps.Subscribe}, {globs, true, ps.PSubscribe}} {
		for names := range slices.Chunk(step.names, most) {
			if step.subscribe {
				s.mu.Lock()
				s.unanswered = append(s.unanswered, subscribeCommand{names, len(names)})
				s.mu.Unlock()
			}
			if err := step.send(endedContext, names...); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *subscriber) read(ctx context.Context, ps *redis.PubSub) error {
	for {
		got, err := ps.ReceiveTimeout(endedContext, s.timeout)
		if ctx.Err() != nil {
			return err
		}
		var refusal redis.Error
		switch {
		case err == nil:
		case errors.As(err, &refusal) && redis.HasErrorPrefix(err, "NOPERM"):
			if !strings.Contains(err.Error(), "'ping'") { // the node lives if it refuses PING
				s.refuse(err)
			}
			continue
		default:
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				err = errors.New("the node's pub/sub connection does not answer")
			}
			return err
		}
		switch m := got.(type) {
		case *redis.Message:
			if !s.isProbeChannel(m.Channel) {
				s.onMessage(m)
			}
		case *redis.Subscription:
			if m.Kind == "subscribe" || m.Kind == "psubscribe" {
				s.onSubscribed(m.Channel)
			}
		}
	}
}

func (s *subscriber) onSubscribed(name string) {
	s.mu.Lock()
	if len(s.unanswered) > 0 {
		if s.unanswered[0].unconfirmed--; s.unanswered[0].unconfirmed == 0 {
			s.unanswered = s.unanswered[1:]
		}
	}
	if name == s.probeChannelLocked() {
		s.probe = name
	}
	sub := s.channels[name]
	if sub == nil || sub.isConfirmed {
		s.mu.Unlock()
		return
	}
	sub.isConfirmed = true
	close(sub.confirmed)
	resubscribed := s.answeredLocked(sub) || !sub.initial && s.awaited == 0 && sub.interruptions != sub.caughtUp
	s.mu.Unlock()
	s.onConfirmed(name)
	if resubscribed {
		s.onResubscribed()
	}
}

// refuse handles the refusal of the oldest unanswered command. If the command had several
// channels, each is tried again by its own command.
func (s *subscriber) refuse(err error) {
	s.mu.Lock()
	s.lastErr = err
	resubscribed := false
	if len(s.unanswered) > 0 {
		names := s.unanswered[0].names
		s.unanswered = s.unanswered[1:]
		if len(names) > 1 {
			s.oneByOne = true
			s.toSubscribe = append(s.toSubscribe, names...)
			s.signal()
		} else if sub := s.channels[names[0]]; sub != nil {
			s.refused = append(s.refused, names[0])
			resubscribed = s.answeredLocked(sub)
		}
	}
	s.mu.Unlock()
	if resubscribed {
		s.onResubscribed()
	}
}

func (s *subscriber) retryRefused() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refused) > 0 {
		s.toSubscribe, s.refused = append(s.toSubscribe, s.refused...), nil
		s.signal()
	}
}
