package redis

import (
	"context"
	"errors"
	"strconv"
	"time"
)

// errOtherNode is why a radio gives up a connection that is alive.
var errOtherNode = errors.New("the pub/sub connection is not at the node that commands go to")

// watch asks the node that commands go to, again and again until ctx ends, whether this
// radio's connection listens there. After a failover the connection may stay at the old
// primary, which answers PING as before. Redis tells how many of the connections to that one
// node listen to a channel, in a cluster too; and only this connection listens to its own.
func (r *subscriber) watch(ctx context.Context, listeners func(ctx context.Context, channel string) (any, error)) {
	for {
		wait(ctx, min(r.alive/3, time.Second))
		if ctx.Err() != nil {
			return
		}
		r.mu.Lock()
		own, leave := r.own, r.leave
		r.mu.Unlock()
		if own == "" {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, r.alive)
		n, err := listeners(ask, own)
		cancel()
		if err == nil && n == int64(0) {
			leave(errOtherNode)
		}
	}
}

// ownLocked names the channel that only this connection listens to.
func (r *subscriber) probeChannelLocked() string { return r.server + ":" + strconv.Itoa(r.sessions) }

func (r *subscriber) isProbeChannel(channel string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return channel == r.own
}
