package commands

import (
	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/resp"
)

// Notices returns a simba.Notices that publishes to the subscribers of b.
//
// Subscribers by SUBSCRIBE, PSUBSCRIBE and SSUBSCRIBE all receive a notice, so a contender may use
// the command that its client library prefers. Publish counts only subscribers of exactly this
// channel. Subscribers of patterns do not count, because they may not be contenders.
func Notices(b *resp.Broker) simba.Notices { return notices{b} }

type notices struct{ *resp.Broker }

func (n notices) Publish(channel, payload string) int {
	return n.PublishCountExact(channel, payload) + n.PublishShard(channel, payload)
}

func (n notices) Subscribed(channel string) bool {
	return n.Subscribers(resp.KindChannel, channel) > 0 || n.Subscribers(resp.KindShard, channel) > 0
}

func (n notices) SubscribedPattern(pattern string) bool {
	return n.Subscribers(resp.KindPattern, pattern) > 0
}
