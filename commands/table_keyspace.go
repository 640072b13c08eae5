package commands

var keyRead = keys{1, 1, 1, []string{"RO"}}

// In an engine that has no keys, the key of mutex m is simba:{m}; a tool that walks the keys
// of a Redis sees the mutexes that have an owner.
var keyspaceCommands = []command{
	{
		name: "dbsize", arity: 1, flags: readonly | fast, categories: catKeyspace,
		group: "generic", since: "1.0.0", run: withoutKeys((*client).dbsize), keyed: dbsize,
		summary:    "Return the number of mutexes that have an owner",
		complexity: "O(1)",
		tips:       []string{"request_policy:all_shards", "response_policy:agg_sum"},
	},
	{
		name: "flushall", arity: -1, flags: write | audited, categories: catKeyspace | catDangerous,
		group: "generic", since: "1.0.0", run: (*client).flush,
		summary:    "Break all tenures, if the setting flush-held-locks allows it",
		complexity: "O(N) where N is the number of mutexes",
		tips:       []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		args:       flushMode,
	},
	{
		name: "flushdb", arity: -1, flags: write | audited, categories: catKeyspace | catDangerous,
		group: "generic", since: "1.0.0", run: (*client).flush,
		summary:    "Break all tenures, as FLUSHALL: there is one database",
		complexity: "O(N) where N is the number of mutexes",
		tips:       []string{"request_policy:all_shards", "response_policy:all_succeeded"},
		args:       flushMode,
	},
	{
		name: "keys", arity: 2, flags: readonly, categories: catKeyspace | catDangerous,
		group: "generic", since: "1.0.0", keyed: keysOf,
		summary:    "Find all lock keys matching the given pattern",
		complexity: "O(N) with N being the number of mutexes",
		tips:       []string{"request_policy:all_shards", "nondeterministic_output_order"},
		args:       []argument{{name: "pattern", kind: pattern}},
	},
	{
		name: "randomkey", arity: 1, flags: readonly, categories: catKeyspace,
		group: "generic", since: "1.0.0", keyed: randomkey,
		summary:    "Return a random lock key",
		complexity: "O(1)",
		tips:       []string{"request_policy:all_shards", "nondeterministic_output"},
	},
	{
		name: "scan", arity: -2, flags: readonly, categories: catKeyspace,
		group: "generic", since: "2.8.0", run: withoutKeys((*client).scan), keyed: scan,
		summary:    "Iterate over the keys of the mutexes that have an owner",
		complexity: "O(1) for every call. O(N) for a complete iteration over N mutexes",
		tips:       []string{"nondeterministic_output", "request_policy:special"},
		args: []argument{{name: "cursor", kind: integer},
			{name: "pattern", token: "MATCH", kind: pattern, optional: true}, countOption,
			{name: "type", token: "TYPE", kind: str, optional: true},
		},
	},
	{
		name: "strlen", arity: 2, flags: readonly | fast, categories: catString, keys: keyRead,
		group: "string", since: "2.2.0", run: withoutKeys((*client).strlen), keyed: strlen,
		summary:    "Get the length of the owner's id, the value behind the key of a mutex",
		complexity: "O(1)",
		args:       []argument{{name: "key", kind: key}},
	},
	{
		name: "type", arity: 2, flags: readonly | fast, categories: catKeyspace,
		keys: keyRead, group: "generic", since: "1.0.0", run: withoutKeys((*client).typeOf), keyed: typeOf,
		summary:    "Determine the type of a key: string or hash for a mutex that has an owner, zset for a queue",
		complexity: "O(1)",
		args:       []argument{{name: "key", kind: key}},
	},
}

var flushMode = []argument{{name: "mode", kind: oneof, optional: true, args: []argument{
	{name: "async", token: "ASYNC", kind: pureToken}, {name: "sync", token: "SYNC", kind: pureToken}}}}
