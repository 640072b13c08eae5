package commands

import (
	"context"
	"time"

	"github.com/simba-resp/simba-resp/resp"
)

// Cluster clients route a shard channel like a key. So the table lists it among the keys.
var (
	shardChannel  = keys{first: 1, last: 1, step: 1, channels: true}
	shardChannels = keys{first: 1, last: -1, step: 1, channels: true}
)

var pubsubCommands = []command{
	{
		name: "psubscribe", arity: -2, flags: pubsub | control | unqueued | subMode, channels: listensByGlob,
		since: "2.0.0", run: subscribing(resp.KindPattern),
		summary: "Listen for messages published to channels matching the given patterns",
		args:    "pattern [pattern ...]",
	},
	{
		name: "publish", arity: 3, flags: pubsub | loading | stale | fast | mayReplicate, channels: publishes, actor: noticeOwner,
		since: "2.0.0", run: (*client).publish, keyed: publishKeyed,
		summary: "Post a message to a channel",
		args:    "channel message",
	},
	{
		name: "pubsub", arity: -2, since: "2.8.0",
		summary: "A container for Pub/Sub commands",
		subs: []command{
			{
				name: "channels", arity: -2, flags: pubsub | loading | stale, since: "2.8.0", run: listingChannels(resp.KindChannel),
				summary: "List active channels",
				args:    "[pattern]",
			},
			{
				name: "numpat", arity: 2, flags: pubsub | loading | stale, since: "2.8.0", run: (*client).pubsubNumPat,
				summary: "Get the count of unique patterns pattern subscriptions",
			},
			{
				name: "numsub", arity: -2, flags: pubsub | loading | stale, since: "2.8.0", run: countingSubscribers(resp.KindChannel),
				summary: "Get the count of subscribers for channels",
				args:    "[channel [channel ...]]",
			},
			{
				name: "shardchannels", arity: -2, flags: pubsub | loading | stale, since: "7.0.0", run: listingChannels(resp.KindShard),
				summary: "List active shard channels",
				args:    "[pattern]",
			},
			{
				name: "shardnumsub", arity: -2, flags: pubsub | loading | stale, since: "7.0.0", run: countingSubscribers(resp.KindShard),
				summary: "Get the count of subscribers for shard channels",
				args:    "[shardchannel [shardchannel ...]]",
			},
		},
	},
	{
		name: "punsubscribe", arity: -1, flags: pubsub | control | unqueued | subMode,
		since: "2.0.0", run: unsubscribing(resp.KindPattern),
		summary: "Stop listening for messages posted to channels matching the given patterns",
		args:    "[pattern [pattern ...]]",
	},
	{
		name: "spublish", arity: 3, flags: pubsub | loading | stale | fast, keys: shardChannel, channels: publishes, actor: noticeOwner,
		since: "7.0.0", run: (*client).spublish,
		summary: "Post a message to a shard channel",
		args:    "shardchannel message",
	},
	{
		name: "ssubscribe", arity: -2, flags: pubsub | control | unqueued | subMode, keys: shardChannels, channels: listens,
		since: "7.0.0", run: subscribing(resp.KindShard),
		summary: "Listen for messages published to the given shard channels",
		args:    "shardchannel [shardchannel ...]",
	},
	{
		name: "subscribe", arity: -2, flags: pubsub | control | unqueued | subMode, channels: listens,
		since: "2.0.0", run: subscribing(resp.KindChannel),
		summary: "Listen for messages published to the given channels",
		args:    "channel [channel ...]",
	},
	{
		name: "sunsubscribe", arity: -1, flags: pubsub | control | unqueued | subMode, keys: shardChannels,
		since: "7.0.0", run: unsubscribing(resp.KindShard),
		summary: "Stop listening for messages posted to the given shard channels",
		args:    "[shardchannel [shardchannel ...]]",
	},
	{
		name: "unsubscribe", arity: -1, flags: pubsub | control | unqueued | subMode,
		since: "2.0.0", run: unsubscribing(resp.KindChannel),
		summary: "Stop listening for messages posted to the given channels",
		args:    "[channel [channel ...]]",
	},
}

const (
	maxChannelLen    = 1024  // bytes of a channel's name
	maxSubscriptions = 10000 // of a connection
)

// checkChannels refuses channels or globs that are too long or too many. A channel counts even if
// the connection has subscribed to it already.
func (c *client) checkChannels(kind resp.Kind, channels [][]byte) error {
	if c.conn.SubscriptionCount()+len(channels) > maxSubscriptions {
		return replyErrorf("ERR too many subscriptions: a connection may have at most %d", maxSubscriptions)
	}
	for _, ch := range channels {
		err := checkLength("channel", ch, maxChannelLen)
		if kind == resp.KindPattern {
			err = checkLength("pattern", ch, maxGlobLen)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// subscribing returns SUBSCRIBE, PSUBSCRIBE or SSUBSCRIBE.
func subscribing(kind resp.Kind) func(c *client, args [][]byte) error {
	return func(c *client, args [][]byte) error {
		if err := c.checkChannels(kind, args[1:]); err != nil {
			return err
		}
		for _, ch := range args[1:] {
			channel := string(ch)
			c.conn.Subscribe(kind, channel)
			c.confirm(kind, &channel)
			c.subscribed(channel, kind == resp.KindPattern)
		}
		c.endIfRevoked()
		return nil
	}
}

// subscribed reports a new subscription to the backend. If the notice of a reservation has reached
// no subscriber, the backend now repeats the notice. If the store does not answer, the backend
// records the subscription later. Until then the client may miss notices.
func (c *client) subscribed(channel string, pattern bool) {
	began := time.Now()
	ctx, cancel := context.WithCancel(c.conn.Context())
	defer cancel()
	if c.lost().over() {
		cancel() // the engine does not wait for the store
	}
	seq, err := c.backend().Subscribed(ctx, channel, pattern)
	c.conn.ReplyAfter(seq)
	if err != nil {
		c.lost().met(err, time.Since(began))
		c.x.store.faults.met(err) // client.fail does this only for errors in replies
		c.x.cfg.Logger.Debug("cannot report a subscription to the engine yet", "channel", channel, "err", err)
	}
}

// unsubscribing returns UNSUBSCRIBE, PUNSUBSCRIBE or SUNSUBSCRIBE. Without channels, the command ends
// all subscriptions of its kind.
func unsubscribing(kind resp.Kind) func(c *client, args [][]byte) error {
	return func(c *client, args [][]byte) error {
		var channels []string
		for _, ch := range args[1:] {
			channels = append(channels, string(ch))
		}
		if channels == nil {
			channels = c.conn.Subscriptions(kind)
		}
		for _, channel := range channels {
			c.conn.Unsubscribe(kind, channel)
			c.confirm(kind, &channel)
		}
		if len(channels) == 0 {
			c.confirm(kind, nil)
		}
		return nil
	}
}

// confirm appends the frame that confirms a subscription or its end. For a shard channel, the frame
// has the number of the connection's subscriptions to shard channels. For a channel or a pattern,
// it has the number of its other subscriptions.
func (c *client) confirm(kind resp.Kind, channel *string) {
	c.w.Push(3)
	c.w.BulkString(c.call.entry.name)
	if channel != nil {
		c.w.BulkString(*channel)
	} else {
		c.w.Null()
	}
	left := c.conn.SubscriptionCountOf(resp.KindShard)
	if kind != resp.KindShard {
		left = c.conn.SubscriptionCount() - left
	}
	c.w.Int(int64(left))
}

func (c *client) publish(args [][]byte) error {
	if err := checkLength("channel", args[1], maxChannelLen); err != nil {
		return err
	}
	n := c.x.server.Broker().Publish(string(args[1]), string(args[2]))
	c.conn.AddReceivers(n)
	c.w.Int(int64(n))
	return nil
}

// publishKeyed is PUBLISH in a transaction. The server sends the message when the transaction is
// durable. The reply is the number of receivers at the time of the command.
func publishKeyed(t *keyTx, args [][]byte) error {
	if err := checkLength("channel", args[1], maxChannelLen); err != nil {
		return err
	}
	channel := string(args[1])
	t.Publish(channel, string(args[2]))
	n := t.c.x.receivers(channel)
	t.c.conn.AddReceivers(n)
	t.w.Int(int64(n))
	return nil
}

// receivers returns how many subscriptions a message on a channel would reach now.
func (x *Commands) receivers(channel string) int {
	broker := x.server.Broker()
	n := broker.Subscribers(resp.KindChannel, channel)
	if broker.PatternCount() == 0 {
		return n
	}
	for _, p := range broker.Channels(resp.KindPattern, "") {
		if resp.Match(p, channel) {
			n += broker.Subscribers(resp.KindPattern, p)
		}
	}
	return n
}

func (c *client) spublish(args [][]byte) error {
	n := c.x.server.Broker().PublishShard(string(args[1]), string(args[2]))
	c.conn.AddReceivers(n)
	c.w.Int(int64(n))
	return nil
}

// listingChannels returns PUBSUB CHANNELS or PUBSUB SHARDCHANNELS.
func listingChannels(kind resp.Kind) func(c *client, args [][]byte) error {
	return func(c *client, args [][]byte) error {
		glob := "*"
		var err error
		switch len(args) {
		case 2:
		case 3:
			glob, err = parseGlob("pattern", args[2])
		default:
			err = tryHelp(c.call.entry, args)
		}
		if err != nil {
			return err
		}
		writeStrings(c.w, c.x.server.Broker().Channels(kind, glob))
		return nil
	}
}

// countingSubscribers returns PUBSUB NUMSUB or PUBSUB SHARDNUMSUB.
func countingSubscribers(kind resp.Kind) func(c *client, args [][]byte) error {
	return func(c *client, args [][]byte) error {
		c.w.Array(2 * len(args[2:]))
		for _, ch := range args[2:] {
			c.w.Bulk(ch)
			c.w.Int(int64(c.x.server.Broker().Subscribers(kind, string(ch))))
		}
		return nil
	}
}

func (c *client) pubsubNumPat([][]byte) error {
	c.w.Int(int64(c.x.server.Broker().PatternCount()))
	return nil
}
