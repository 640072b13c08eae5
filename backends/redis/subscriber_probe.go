package redis

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// After a failover a subscriber's connection may stay at the old primary, which still answers PING.
// So each connection subscribes to its own probe channel, and the server publishes to that channel
// at the node that commands go to.

// errOtherNode is why a subscriber closes a connection that still answers.
var errOtherNode = errors.New("the pub/sub connection is not at the node that commands go to")

// runProbe publishes to the probe channel at regular intervals until ctx ends, and closes the
// connection if nobody received the message. count publishes and returns the number of receivers.
func (s *subscriber) runProbe(ctx context.Context, count func(ctx context.Context, channel string) (any, error)) {
	for {
		pause(ctx, min(s.timeout/3, time.Second))
		if ctx.Err() != nil {
			return
		}
		s.mu.Lock()
		probe, disconnect := s.probe, s.disconnect
		s.mu.Unlock()
		if probe == "" {
			continue
		}
		countCtx, cancel := context.WithTimeout(ctx, s.timeout)
		n, err := count(countCtx, probe)
		cancel()
		if err == nil && n == int64(0) {
			disconnect(errOtherNode)
		}
	}
}

// probeChannelLocked returns the name of this connection's probe channel.
func (s *subscriber) probeChannelLocked() string {
	return s.serverChannel + ":" + strconv.Itoa(s.connects)
}

func (s *subscriber) isProbeChannel(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return channel == s.probe
}
