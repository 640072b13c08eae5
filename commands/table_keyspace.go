package commands

var keyRead = keys{1, 1, 1, []string{"RO"}}

// The key of mutex m is simba:{m}; a tool that walks the keys of a Redis sees
// the mutexes that have an owner.
var keyspaceCommands = []command{
	{
		name: "dbsize", arity: 1, flags: readonly | fast, categories: catKeyspace,
		group: "generic", since: "1.0.0", run: (*client).dbsize,
		summary:    "Return the number of mutexes that have an owner",
		complexity: "O(1)",
		tips:       []string{"request_policy:all_shards", "response_policy:agg_sum"},
	},
	{
		name: "scan", arity: -2, flags: readonly, categories: catKeyspace,
		group: "generic", since: "2.8.0", run: (*client).scan,
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
		group: "string", since: "2.2.0", run: (*client).strlen,
		summary:    "Get the length of the owner's id, the value behind the key of a mutex",
		complexity: "O(1)",
		args:       []argument{{name: "key", kind: key}},
	},
	{
		name: "type", arity: 2, flags: readonly | fast, categories: catKeyspace,
		keys: keyRead, group: "generic", since: "1.0.0", run: (*client).typeOf,
		summary:    "Determine the type of a key: string for the key of a mutex that has an owner",
		complexity: "O(1)",
		args:       []argument{{name: "key", kind: key}},
	},
}
