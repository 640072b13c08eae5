package commands

import (
	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// Notices returns the way of an engine's notices to the subscribers of b.
//
// A notice goes to SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE alike, so a contender may
// listen as its client library prefers. Those who count as reached are only the
// subscribers of exactly that channel: one who watches a pattern is an onlooker.
func Notices(b *resp.Broker) simba.Notices { return notices{b} }

type notices struct{ broker *resp.Broker }

func (n notices) Publish(channel, payload string) int {
	return n.broker.Notify(channel, payload) + n.broker.PublishShard(channel, payload)
}

func (n notices) Subscribed(channel string) bool {
	return n.broker.Subscribers(resp.Channel, channel) > 0 || n.broker.Subscribers(resp.Shard, channel) > 0
}

func (n notices) SubscribedPattern(pattern string) bool {
	return n.broker.Subscribers(resp.Pattern, pattern) > 0
}

func (n notices) Any() bool { return n.broker.Any() }
