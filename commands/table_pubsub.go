package commands

// A shard channel is routed like a key but is none.
var (
	shardChannel  = keys{1, 1, 1, []string{"not_key"}}
	shardChannels = keys{1, -1, 1, []string{"not_key"}}
)

var pubsubCommands = []command{
	{
		name: "psubscribe", arity: -2, flags: pubsub | control | unqueued | subMode, channels: listensByGlob,
		group: "pubsub", since: "2.0.0", run: (*client).psubscribe,
		summary:    "Listen for messages published to channels matching the given patterns",
		complexity: "O(N) where N is the number of patterns given",
		args:       []argument{{name: "pattern", kind: pattern, multiple: true}},
	},
	{
		name: "publish", arity: 3, flags: pubsub | loading | stale | fast | mayReplicate, channels: publishes, actor: noticeOwner,
		group: "pubsub", since: "2.0.0", run: (*client).publish, keyed: publishKeyed,
		summary:    "Post a message to a channel",
		complexity: "O(N+M) where N is the number of clients subscribed to the channel and M is the number of subscribed patterns",
		args:       []argument{{name: "channel", kind: str}, {name: "message", kind: str}},
	},
	{
		name: "pubsub", arity: -2, group: "pubsub", since: "2.8.0",
		summary:    "A container for Pub/Sub commands",
		complexity: "Depends on subcommand.",
		subs: []command{
			{
				name: "channels", arity: -2, flags: pubsub | loading | stale, since: "2.8.0", run: (*client).pubsubChannels,
				summary:    "List active channels",
				complexity: "O(N) where N is the number of active channels",
				args:       []argument{{name: "pattern", kind: pattern, optional: true}},
			},
			{
				name: "numpat", arity: 2, flags: pubsub | loading | stale, since: "2.8.0", run: (*client).pubsubNumPat,
				summary:    "Get the count of unique patterns pattern subscriptions",
				complexity: "O(1)",
			},
			{
				name: "numsub", arity: -2, flags: pubsub | loading | stale, since: "2.8.0", run: (*client).pubsubNumSub,
				summary:    "Get the count of subscribers for channels",
				complexity: "O(N) where N is the number of channels given",
				args:       []argument{{name: "channel", kind: str, optional: true, multiple: true}},
			},
			{
				name: "shardchannels", arity: -2, flags: pubsub | loading | stale, since: "7.0.0", run: (*client).pubsubShardChannels,
				summary:    "List active shard channels",
				complexity: "O(N) where N is the number of active shard channels",
				args:       []argument{{name: "pattern", kind: pattern, optional: true}},
			},
			{
				name: "shardnumsub", arity: -2, flags: pubsub | loading | stale, since: "7.0.0", run: (*client).pubsubShardNumSub,
				summary:    "Get the count of subscribers for shard channels",
				complexity: "O(N) where N is the number of shard channels given",
				args:       []argument{{name: "shardchannel", kind: str, optional: true, multiple: true}},
			},
		},
	},
	{
		name: "punsubscribe", arity: -1, flags: pubsub | control | unqueued | subMode,
		group: "pubsub", since: "2.0.0", run: (*client).punsubscribe,
		summary:    "Stop listening for messages posted to channels matching the given patterns",
		complexity: "O(N) where N is the number of patterns given",
		args:       []argument{{name: "pattern", kind: pattern, optional: true, multiple: true}},
	},
	{
		name: "spublish", arity: 3, flags: pubsub | loading | stale | fast, keys: shardChannel, channels: publishes, actor: noticeOwner,
		group: "pubsub", since: "7.0.0", run: (*client).spublish,
		summary:    "Post a message to a shard channel",
		complexity: "O(N) where N is the number of clients subscribed to the shard channel",
		args:       []argument{{name: "shardchannel", kind: str}, {name: "message", kind: str}},
	},
	{
		name: "ssubscribe", arity: -2, flags: pubsub | control | unqueued | subMode, keys: shardChannels, channels: listens,
		group: "pubsub", since: "7.0.0", run: (*client).ssubscribe,
		summary:    "Listen for messages published to the given shard channels",
		complexity: "O(N) where N is the number of shard channels given",
		args:       []argument{{name: "shardchannel", kind: str, multiple: true}},
	},
	{
		name: "subscribe", arity: -2, flags: pubsub | control | unqueued | subMode, channels: listens,
		group: "pubsub", since: "2.0.0", run: (*client).subscribe,
		summary:    "Listen for messages published to the given channels",
		complexity: "O(N) where N is the number of channels given",
		args:       []argument{{name: "channel", kind: str, multiple: true}},
	},
	{
		name: "sunsubscribe", arity: -1, flags: pubsub | control | unqueued | subMode, keys: shardChannels,
		group: "pubsub", since: "7.0.0", run: (*client).sunsubscribe,
		summary:    "Stop listening for messages posted to the given shard channels",
		complexity: "O(N) where N is the number of shard channels given",
		args:       []argument{{name: "shardchannel", kind: str, optional: true, multiple: true}},
	},
	{
		name: "unsubscribe", arity: -1, flags: pubsub | control | unqueued | subMode,
		group: "pubsub", since: "2.0.0", run: (*client).unsubscribe,
		summary:    "Stop listening for messages posted to the given channels",
		complexity: "O(N) where N is the number of channels given",
		args:       []argument{{name: "channel", kind: str, optional: true, multiple: true}},
	},
}
