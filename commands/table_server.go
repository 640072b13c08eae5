package commands

var serverCommands = []command{
	{
		name: "acl", arity: -2, group: "server", since: "6.0.0",
		summary:    "A container for Access List Control commands",
		complexity: "Depends on subcommand.",
		subs:       aclSubcommands,
	},
	{
		name: "cluster", arity: -2, group: "cluster", since: "3.0.0", run: (*client).cluster,
		summary:    "Refused: cluster support is disabled",
		complexity: "O(1)",
	},
	{
		name: "command", arity: -1, flags: loading | stale, categories: catConnection,
		group: "server", since: "2.8.13", run: (*client).commandAll,
		summary:    "Get array of command details",
		complexity: "O(N) where N is the total number of commands",
		tips:       []string{"nondeterministic_output_order"},
		subs:       commandSubcommands,
	},
	{
		name: "config", arity: -2, group: "server", since: "2.0.0",
		summary:    "A container for server configuration commands",
		complexity: "Depends on subcommand.",
		subs:       configSubcommands,
	},
	{
		name: "info", arity: -1, flags: loading | stale, categories: catDangerous,
		group: "server", since: "1.0.0", run: (*client).info,
		summary:    "Get information and statistics about the server",
		complexity: "O(1)",
		tips:       []string{"nondeterministic_output", "request_policy:all_shards", "response_policy:special"},
		args:       []argument{{name: "section", kind: str, optional: true, multiple: true}},
	},
	{
		name: "latency", arity: -2, group: "server", since: "2.8.13",
		summary:    "A container for latency diagnostics commands",
		complexity: "Depends on subcommand.",
		subs:       latencySubcommands,
	},
	{
		name: "memory", arity: -2, group: "server", since: "4.0.0",
		summary:    "A container for memory diagnostics commands",
		complexity: "Depends on subcommand.",
		subs: []command{{
			name: "usage", arity: -3, flags: readonly, keys: keys{2, 2, 1, []string{"RO"}}, since: "4.0.0", run: (*client).memoryUsage,
			summary:    "Estimate the memory usage of a key",
			complexity: "O(1)",
			args: []argument{{name: "key", kind: key},
				{name: "count", token: "SAMPLES", kind: integer, optional: true}},
		}},
	},
	{
		name: "module", arity: -2, group: "server", since: "4.0.0",
		summary:    "A container for module commands",
		complexity: "Depends on subcommand.",
		subs: []command{{
			name: "list", arity: 2, flags: adminHidden | noscript, since: "4.0.0", run: (*client).moduleList,
			summary:    "List all modules loaded by the server: there are none",
			complexity: "O(1)",
			tips:       []string{"nondeterministic_output_order"},
		}},
	},
	{
		name: "monitor", arity: 1, flags: adminControl | unqueued,
		group: "server", since: "1.0.0", run: (*client).monitor,
		summary: "Listen for all requests received by the server in real time",
	},
	{
		name: "role", arity: 1, flags: control | fast, categories: catAdmin | catDangerous,
		group: "server", since: "2.8.12", run: (*client).role,
		summary:    "Return the role of the instance in the context of replication",
		complexity: "O(1)",
	},
	{
		name: "shutdown", arity: -1, flags: adminControl | noMulti | allowBusy,
		group: "server", since: "1.0.0", run: (*client).shutdown,
		summary:    "Stop the server; leases stay, on disk",
		complexity: "O(1)",
		args: []argument{
			{name: "nosave_save", kind: oneof, optional: true, args: []argument{
				{name: "nosave", token: "NOSAVE", kind: pureToken},
				{name: "save", token: "SAVE", kind: pureToken},
			}},
			{name: "now", token: "NOW", kind: pureToken, optional: true},
			{name: "force", token: "FORCE", kind: pureToken, optional: true},
			{name: "abort", token: "ABORT", kind: pureToken, optional: true},
		},
	},
	{
		name: "slowlog", arity: -2, group: "server", since: "2.2.12",
		summary:    "A container for slow log commands",
		complexity: "Depends on subcommand.",
		subs:       slowlogSubcommands,
	},
	{
		name: "time", arity: 1, flags: loading | stale | fast,
		group: "server", since: "2.6.0", run: (*client).time, keyed: timeKeyed,
		summary:    "Return the current server time",
		complexity: "O(1)",
		tips:       []string{"nondeterministic_output"},
	},
}

var commandSubcommands = []command{
	{
		name: "count", arity: 2, flags: loading | stale, categories: catConnection, since: "2.8.13", run: (*client).commandCount,
		summary:    "Get total number of commands",
		complexity: "O(1)",
	},
	{
		name: "docs", arity: -2, flags: loading | stale, categories: catConnection, since: "7.0.0", run: (*client).commandDocs,
		summary:    "Get array of specific command documentation",
		complexity: "O(N) where N is the number of commands to look up",
		tips:       []string{"nondeterministic_output_order"},
		args:       []argument{{name: "command-name", kind: str, optional: true, multiple: true}},
	},
	{
		name: "getkeys", arity: -3, flags: loading | stale, categories: catConnection, since: "2.8.13", run: (*client).commandGetKeys,
		summary:    "Extract keys given a full command",
		complexity: "O(N) where N is the number of arguments to the command",
		args: []argument{{name: "command", kind: str},
			{name: "arg", kind: str, optional: true, multiple: true}},
	},
	{
		name: "info", arity: -2, flags: loading | stale, categories: catConnection, since: "2.8.13", run: (*client).commandInfo,
		summary:    "Get array of specific command details, or all when no argument is given.",
		complexity: "O(N) where N is the number of commands to look up",
		tips:       []string{"nondeterministic_output_order"},
		args:       []argument{{name: "command-name", kind: str, optional: true, multiple: true}},
	},
	{
		name: "list", arity: -2, flags: loading | stale, categories: catConnection, since: "7.0.0", run: (*client).commandList,
		summary:    "Get an array of command names",
		complexity: "O(N) where N is the total number of commands",
		tips:       []string{"nondeterministic_output_order"},
		args: []argument{{name: "filterby", token: "FILTERBY", kind: oneof, optional: true, args: []argument{
			{name: "module-name", token: "MODULE", kind: str},
			{name: "category", token: "ACLCAT", kind: str},
			{name: "pattern", token: "PATTERN", kind: pattern},
		}}},
	},
}

var configSubcommands = []command{
	{
		name: "get", arity: -3, flags: adminControl, since: "2.0.0", run: (*client).configGet,
		summary:    "Get the values of configuration parameters",
		complexity: "O(N) when N is the number of configuration parameters provided",
		args:       []argument{{name: "parameter", kind: str, multiple: true}},
	},
	{
		name: "resetstat", arity: 2, flags: adminControl, since: "2.0.0", run: (*client).configResetStat,
		summary:    "Reset the stats returned by INFO",
		complexity: "O(1)",
	},
	{
		name: "rewrite", arity: 2, flags: adminControl, since: "2.8.0", run: (*client).configRewrite,
		summary:    "Refused: the server does not write its configuration file",
		complexity: "O(1)",
	},
	{
		name: "set", arity: -4, flags: adminControl | secret, since: "2.0.0", run: (*client).configSet,
		summary:    "Set configuration parameters to the given values, all or none",
		complexity: "O(N) when N is the number of configuration parameters provided",
		tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		args: []argument{{name: "parameter_value", kind: block, multiple: true, args: []argument{
			{name: "parameter", kind: str}, {name: "value", kind: str}}}},
	},
}

var latencySubcommands = []command{
	{
		name: "histogram", arity: -2, flags: adminControl, since: "7.0.0", run: (*client).latencyHistogram,
		summary:    "Return the cumulative distribution of latencies of a subset of commands or all.",
		complexity: "O(N) where N is the number of commands with latency information being retrieved.",
		tips:       []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
		args:       []argument{{name: "command", kind: str, optional: true, multiple: true}},
	},
	{
		name: "history", arity: 3, flags: adminControl, since: "2.8.13", run: (*client).latencyHistory,
		summary:    "Return timestamp-latency samples for the event.",
		complexity: "O(1)",
		tips:       []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
		args:       []argument{{name: "event", kind: str}},
	},
	{
		name: "latest", arity: 2, flags: adminControl, since: "2.8.13", run: (*client).latencyLatest,
		summary:    "Return the latest latency samples for all events.",
		complexity: "O(1)",
		tips:       []string{"nondeterministic_output", "request_policy:all_nodes", "response_policy:special"},
	},
	{
		name: "reset", arity: -2, flags: adminControl, since: "2.8.13", run: (*client).latencyReset,
		summary:    "Reset latency data for one or more events.",
		complexity: "O(1)",
		tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
		args:       []argument{{name: "event", kind: str, optional: true, multiple: true}},
	},
}

var slowlogSubcommands = []command{
	{
		name: "get", arity: -2, flags: adminHidden | loading | stale, since: "2.2.12", run: (*client).slowlogGet,
		summary:    "Get the slow log's entries",
		complexity: "O(N) where N is the number of entries returned",
		tips:       []string{"request_policy:all_nodes", "nondeterministic_output"},
		args:       []argument{{name: "count", kind: integer, optional: true}},
	},
	{
		name: "len", arity: 2, flags: adminHidden | loading | stale, since: "2.2.12", run: (*client).slowlogLen,
		summary:    "Get the slow log's length",
		complexity: "O(1)",
		tips:       []string{"request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"},
	},
	{
		name: "reset", arity: 2, flags: adminHidden | loading | stale, since: "2.2.12", run: (*client).slowlogReset,
		summary:    "Clear all entries from the slow log",
		complexity: "O(N) where N is the number of entries in the slowlog",
		tips:       []string{"request_policy:all_nodes", "response_policy:all_succeeded"},
	},
}
