package commands

var toggle = []argument{
	{name: "on", token: "ON", kind: pureToken},
	{name: "off", token: "OFF", kind: pureToken},
}

var connectionType = argument{name: "type", token: "TYPE", kind: oneof, optional: true, args: []argument{
	{name: "normal", token: "NORMAL", kind: pureToken},
	{name: "master", token: "MASTER", kind: pureToken},
	{name: "replica", token: "REPLICA", kind: pureToken},
	{name: "pubsub", token: "PUBSUB", kind: pureToken},
}}

var connectionCommands = []command{
	{
		name: "auth", arity: -2, flags: control | fast | noAuth | allowBusy | secret, categories: catConnection,
		group: "connection", since: "1.0.0", run: (*client).auth,
		summary:    "Authenticate to the server",
		complexity: "O(1)",
		args:       []argument{{name: "username", kind: str, optional: true}, {name: "password", kind: str}},
	},
	{
		name: "client", arity: -2, group: "connection", since: "2.4.0",
		summary:    "A container for client connection commands",
		complexity: "Depends on subcommand.",
		subs:       clientSubcommands,
	},
	{
		name: "echo", arity: 2, flags: loading | stale | fast, categories: catConnection,
		group: "connection", since: "1.0.0", run: (*client).echo, keyed: echoKeyed,
		summary:    "Echo the given string",
		complexity: "O(1)",
		args:       []argument{{name: "message", kind: str}},
	},
	{
		name: "hello", arity: -1, flags: control | fast | noAuth | allowBusy | secret, categories: catConnection,
		group: "connection", since: "6.0.0", run: (*client).hello,
		summary:    "Handshake with the server",
		complexity: "O(1)",
		args: []argument{{name: "arguments", kind: block, optional: true, args: []argument{
			{name: "protover", kind: integer},
			{name: "username_password", token: "AUTH", kind: block, optional: true, args: []argument{
				{name: "username", kind: str}, {name: "password", kind: str}}},
			{name: "clientname", token: "SETNAME", kind: str, optional: true},
		}}},
	},
	{
		name: "ping", arity: -1, flags: fast | subMode, categories: catConnection,
		group: "connection", since: "1.0.0", run: (*client).ping, keyed: pingKeyed,
		summary:    "Ping the server",
		complexity: "O(1)",
		tips:       []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		args:       []argument{{name: "message", kind: str, optional: true}},
	},
	{
		name: "quit", arity: -1, flags: control | fast | noAuth | allowBusy | immediate | subMode, categories: catConnection,
		group: "connection", since: "1.0.0", run: (*client).quit,
		summary:    "Close the connection",
		complexity: "O(1)",
	},
	{
		name: "reset", arity: 1, flags: control | fast | noAuth | allowBusy | immediate | subMode, categories: catConnection,
		group: "connection", since: "6.2.0", run: (*client).reset,
		summary:    "Reset the connection",
		complexity: "O(1)",
	},
	{
		name: "select", arity: 2, flags: loading | stale | fast, categories: catConnection,
		group: "connection", since: "1.0.0", run: (*client).selectDB, keyed: selectKeyed,
		summary:    "Change the selected database for the current connection; there is only 0",
		complexity: "O(1)",
		args:       []argument{{name: "index", kind: integer}},
	},
}

var clientSubcommands = []command{
	{
		name: "getname", arity: 2, flags: control, categories: catConnection, since: "2.6.9", run: (*client).clientGetName,
		summary:    "Get the current connection name",
		complexity: "O(1)",
	},
	{
		name: "id", arity: 2, flags: control, categories: catConnection, since: "5.0.0", run: (*client).clientID,
		summary:    "Returns the client ID for the current connection",
		complexity: "O(1)",
	},
	{
		name: "info", arity: 2, flags: control, categories: catConnection, since: "6.2.0", run: (*client).clientInfo,
		summary:    "Returns information about the current client connection.",
		complexity: "O(1)",
		tips:       []string{"nondeterministic_output"},
	},
	{
		name: "kill", arity: -3, flags: adminControl, categories: catConnection, since: "2.4.0", run: (*client).clientKill,
		summary:    "Kill the connection of a client",
		complexity: "O(N) where N is the number of client connections",
		args: []argument{{name: "filter", kind: oneof, args: []argument{
			{name: "ip:port", kind: str},
			{name: "new-format", kind: oneof, multiple: true, args: []argument{
				{name: "client-id", token: "ID", kind: integer, optional: true},
				connectionType,
				{name: "username", token: "USER", kind: str, optional: true},
				{name: "ip:port", token: "ADDR", kind: str, optional: true},
				{name: "ip:port", token: "LADDR", kind: str, optional: true},
				{name: "yes/no", token: "SKIPME", kind: str, optional: true},
				{name: "maxage", token: "MAXAGE", kind: integer, optional: true},
			}},
		}}},
	},
	{
		name: "list", arity: -2, flags: adminControl, categories: catConnection, since: "2.4.0", run: (*client).clientList,
		summary:    "Get the list of client connections",
		complexity: "O(N) where N is the number of client connections",
		tips:       []string{"nondeterministic_output"},
		args: []argument{connectionType,
			{name: "id", token: "ID", kind: block, optional: true, args: []argument{
				{name: "client-id", kind: integer, multiple: true}}},
		},
	},
	{
		name: "no-evict", arity: 3, flags: adminControl, categories: catConnection, since: "7.0.0", run: (*client).clientToggle,
		summary:    "Set client eviction mode for the current connection; no connection is ever evicted",
		complexity: "O(1)",
		args:       []argument{{name: "enabled", kind: oneof, args: toggle}},
	},
	{
		name: "no-touch", arity: 3, flags: control, categories: catConnection, since: "7.2.0", run: (*client).clientToggle,
		summary:    "Control whether commands affect the LRU/LFU of keys; there is none",
		complexity: "O(1)",
		args:       []argument{{name: "enabled", kind: oneof, args: toggle}},
	},
	{
		name: "reply", arity: 3, flags: control | unqueued, categories: catConnection, since: "3.2.0", run: (*client).clientReply,
		summary:    "Instruct the server whether to reply to commands",
		complexity: "O(1)",
		args: []argument{{name: "on_off_skip", kind: oneof, args: append(toggle[:2:2],
			argument{name: "skip", token: "SKIP", kind: pureToken})}},
	},
	{
		name: "setinfo", arity: 4, flags: control, categories: catConnection, since: "7.2.0", run: (*client).clientSetInfo,
		summary:    "Set client or connection specific info",
		complexity: "O(1)",
		args: []argument{{name: "attr", kind: oneof, args: []argument{
			{name: "libname", token: "LIB-NAME", kind: str},
			{name: "libver", token: "LIB-VER", kind: str},
		}}},
	},
	{
		name: "setname", arity: 3, flags: control, categories: catConnection, since: "2.6.9", run: (*client).clientSetName,
		summary:    "Set the current connection name",
		complexity: "O(1)",
		args:       []argument{{name: "connection-name", kind: str}},
	},
	{
		name: "tracking", arity: -3, flags: control, categories: catConnection, since: "6.0.0", run: (*client).clientTracking,
		summary:    "Enable or disable server assisted client side caching, which is not supported",
		complexity: "O(1)",
		args:       []argument{{name: "status", kind: oneof, args: toggle}},
	},
	{
		name: "trackinginfo", arity: 2, flags: control, categories: catConnection, since: "6.2.0", run: (*client).clientTrackingInfo,
		summary:    "Return information about server assisted client side caching for the current connection",
		complexity: "O(1)",
	},
	{
		name: "unblock", arity: -3, flags: adminControl, categories: catConnection, since: "5.0.0", run: (*client).clientUnblock,
		summary:    "Unblock a client blocked in a blocking command from a different connection",
		complexity: "O(1)",
		args: []argument{{name: "client-id", kind: integer},
			{name: "timeout_error", kind: oneof, optional: true, args: []argument{
				{name: "timeout", token: "TIMEOUT", kind: pureToken},
				{name: "error", token: "ERROR", kind: pureToken},
			}},
		},
	},
}
