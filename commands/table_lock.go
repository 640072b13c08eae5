package commands

import "strings"

const unixTime kind = "unix-time"

// manyKeys is all arguments, as keys that are used so.
func manyKeys(flags ...string) keys { return keys{1, -1, 1, flags} }

var (
	keysArg = argument{name: "key", kind: key, multiple: true}

	expireCondition = argument{name: "condition", kind: oneof, optional: true, args: []argument{
		{name: "nx", token: "NX", kind: pureToken}, {name: "xx", token: "XX", kind: pureToken},
		{name: "gt", token: "GT", kind: pureToken}, {name: "lt", token: "LT", kind: pureToken},
	}}
)

// expiryOptions are the ways to give an expiry, and one that gives none.
func expiryOptions(other string) argument {
	return argument{name: "expiration", kind: oneof, optional: true, args: []argument{
		{name: "seconds", token: "EX", kind: integer}, {name: "milliseconds", token: "PX", kind: integer},
		{name: "unix-time-seconds", token: "EXAT", kind: unixTime},
		{name: "unix-time-milliseconds", token: "PXAT", kind: unixTime},
		{name: strings.ToLower(other), token: other, kind: pureToken},
	}}
}

// A lock key is a mutex, its value the owner, its expiry the end of the lease.
var stringCommands = []command{
	{
		name: "decr", arity: 2, flags: write | denyoom | fast, categories: catString, keys: oneKey("RW", "access", "update"),
		group: "string", since: "1.0.0", keyed: decr,
		summary:    "Decrement the integer value of a lock key by one; its tenure goes on",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
	{
		name: "decrby", arity: 3, flags: write | denyoom | fast, categories: catString, keys: oneKey("RW", "access", "update"),
		group: "string", since: "1.0.0", keyed: decrby,
		summary:    "Decrement the integer value of a lock key by the given number",
		complexity: "O(1)",
		args:       []argument{keyArg, {name: "decrement", kind: integer}},
	},
	{
		name: "get", arity: 2, flags: readonly | fast, categories: catString, keys: oneKey("RO", "access"),
		group: "string", since: "1.0.0", keyed: get,
		summary:    "Get the value of a lock key, the owner of its mutex",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
	{
		name: "getdel", arity: 2, flags: write | fast, categories: catString, keys: oneKey("RW", "access", "delete"),
		group: "string", since: "6.2.0", keyed: getdel,
		summary:    "Get the value of a lock key and release its mutex",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
	{
		name: "getex", arity: -2, flags: write | fast, categories: catString, keys: oneKey("RW", "access", "update"),
		keyNotes: "RW and UPDATE because it changes the TTL",
		group:    "string", since: "6.2.0", keyed: getex,
		summary:    "Get the value of a lock key and optionally set its expiration",
		complexity: "O(1)",
		args:       []argument{keyArg, expiryOptions("PERSIST")},
	},
	{
		name: "getset", arity: 3, flags: write | denyoom | fast, categories: catString, keys: oneKey("RW", "access", "update"), actor: oneValue,
		group: "string", since: "1.0.0", keyed: getset,
		summary:    "Take the mutex of a lock key from its owner and return who that was",
		complexity: "O(1)",
		args:       []argument{keyArg, valueArg},
	},
	{
		name: "incr", arity: 2, flags: write | denyoom | fast, categories: catString, keys: oneKey("RW", "access", "update"),
		group: "string", since: "1.0.0", keyed: incr,
		summary:    "Increment the integer value of a lock key by one; its tenure goes on",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
	{
		name: "incrby", arity: 3, flags: write | denyoom | fast, categories: catString, keys: oneKey("RW", "access", "update"),
		group: "string", since: "1.0.0", keyed: incrby,
		summary:    "Increment the integer value of a lock key by the given amount",
		complexity: "O(1)",
		args:       []argument{keyArg, {name: "increment", kind: integer}},
	},
	{
		name: "mget", arity: -2, flags: readonly | fast, categories: catString, keys: manyKeys("RO", "access"),
		group: "string", since: "1.0.0", keyed: mget,
		summary:    "Get the values of all the given lock keys",
		complexity: "O(N) where N is the number of keys to retrieve.",
		tips:       []string{"request_policy:multi_shard"},
		args:       []argument{keysArg},
	},
	{
		name: "psetex", arity: 4, flags: write | denyoom | renewing | cheap, categories: catString, keys: oneKey("OW", "update"), actor: secondValue,
		group: "string", since: "2.6.0", keyed: setExpiring(inMillis),
		summary:    "Set the value and expiration in milliseconds of a lock key",
		complexity: "O(1)",
		args:       []argument{keyArg, {name: "milliseconds", kind: integer}, valueArg},
	},
	{
		name: "set", arity: -3, flags: write | denyoom | renewing | cheap, categories: catString, keys: oneKey("RW", "access", "update", "variable_flags"), actor: oneValue,
		keyNotes: "RW and ACCESS due to the optional `GET` argument",
		group:    "string", since: "1.0.0", keyed: set,
		summary:    "Set the value of a lock key: its mutex has a new owner, or the same with a new lease",
		complexity: "O(1)",
		args: []argument{
			keyArg, valueArg,
			{name: "condition", kind: oneof, optional: true, args: []argument{
				{name: "nx", token: "NX", kind: pureToken}, {name: "xx", token: "XX", kind: pureToken}}},
			{name: "get", token: "GET", kind: pureToken, optional: true}, expiryOptions("KEEPTTL"),
		},
	},
	{
		name: "setex", arity: 4, flags: write | denyoom | renewing | cheap, categories: catString, keys: oneKey("OW", "update"), actor: secondValue,
		group: "string", since: "2.0.0", keyed: setExpiring(inSeconds),
		summary:    "Set the value and expiration of a lock key",
		complexity: "O(1)",
		args:       []argument{keyArg, {name: "seconds", kind: integer}, valueArg},
	},
	{
		name: "setnx", arity: 3, flags: write | denyoom | fast, categories: catString, keys: oneKey("OW", "insert"), actor: oneValue,
		group: "string", since: "1.0.0", keyed: setnx,
		summary:    "Set the value of a lock key only if its mutex is free",
		complexity: "O(1)",
		args:       []argument{keyArg, valueArg},
	},
}

var genericCommands = []command{
	{
		name: "del", arity: -2, flags: write | cheap, categories: catKeyspace, keys: manyKeys("RM", "delete"),
		group: "generic", since: "1.0.0", keyed: del,
		summary:    "Release the mutexes of lock keys, or empty queues",
		complexity: "O(N) where N is the number of keys that will be removed.",
		tips:       []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		args:       []argument{keysArg},
	},
	{
		name: "exists", arity: -2, flags: readonly | fast, categories: catKeyspace, keys: manyKeys("RO"),
		group: "generic", since: "1.0.0", keyed: exists,
		summary:    "Determine if a lock key exists",
		complexity: "O(N) where N is the number of keys to check.",
		tips:       []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		args:       []argument{keysArg},
	},
	{
		name: "expire", arity: -3, flags: write | fast, categories: catKeyspace, keys: oneKey("RW", "update"),
		group: "generic", since: "1.0.0", keyed: expire(inSeconds),
		summary:    "Set a lock key's time to live in seconds: a new lease for its owner",
		complexity: "O(1)",
		args:       []argument{keyArg, {name: "seconds", kind: integer}, expireCondition},
	},
	{
		name: "expireat", arity: -3, flags: write | fast, categories: catKeyspace, keys: oneKey("RW", "update"),
		group: "generic", since: "1.2.0", keyed: expire(atSeconds),
		summary:    "Set the expiration for a lock key as a UNIX timestamp",
		complexity: "O(1)",
		args:       []argument{keyArg, {name: "unix-time-seconds", kind: unixTime}, expireCondition},
	},
	{
		name: "expiretime", arity: 2, flags: readonly | fast, categories: catKeyspace, keys: oneKey("RO", "access"),
		group: "generic", since: "7.0.0", keyed: remaining(atSeconds),
		summary:    "Get the expiration Unix timestamp for a lock key",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
	{
		name: "persist", arity: 2, flags: write | fast, categories: catKeyspace, keys: oneKey("RW", "update"),
		group: "generic", since: "2.2.0", keyed: persist,
		summary:    "Remove the expiration from a lock key: its lease does not end",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
	{
		name: "pexpire", arity: -3, flags: write | fast, categories: catKeyspace, keys: oneKey("RW", "update"),
		group: "generic", since: "2.6.0", keyed: expire(inMillis),
		summary:    "Set a lock key's time to live in milliseconds",
		complexity: "O(1)",
		args:       []argument{keyArg, {name: "milliseconds", kind: integer}, expireCondition},
	},
	{
		name: "pexpireat", arity: -3, flags: write | fast, categories: catKeyspace, keys: oneKey("RW", "update"),
		group: "generic", since: "2.6.0", keyed: expire(atMillis),
		summary:    "Set the expiration for a lock key as a UNIX timestamp specified in milliseconds",
		complexity: "O(1)",
		args:       []argument{keyArg, {name: "unix-time-milliseconds", kind: unixTime}, expireCondition},
	},
	{
		name: "pexpiretime", arity: 2, flags: readonly | fast, categories: catKeyspace, keys: oneKey("RO", "access"),
		group: "generic", since: "7.0.0", keyed: remaining(atMillis),
		summary:    "Get the expiration Unix timestamp for a lock key in milliseconds",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
	{
		name: "pttl", arity: 2, flags: readonly | fast, categories: catKeyspace, keys: oneKey("RO", "access"),
		group: "generic", since: "2.6.0", keyed: remaining(inMillis),
		summary:    "Get the time to live for a lock key in milliseconds",
		complexity: "O(1)",
		tips:       []string{"nondeterministic_output"},
		args:       []argument{keyArg},
	},
	{
		name: "touch", arity: -2, flags: readonly | fast, categories: catKeyspace, keys: manyKeys("RO"),
		group: "generic", since: "3.2.1", keyed: exists,
		summary:    "Determine if lock keys exist, as EXISTS",
		complexity: "O(N) where N is the number of keys that will be touched.",
		tips:       []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		args:       []argument{keysArg},
	},
	{
		name: "ttl", arity: 2, flags: readonly | fast, categories: catKeyspace, keys: oneKey("RO", "access"),
		group: "generic", since: "1.0.0", keyed: remaining(inSeconds),
		summary:    "Get the time to live for a lock key in seconds",
		complexity: "O(1)",
		tips:       []string{"nondeterministic_output"},
		args:       []argument{keyArg},
	},
	{
		name: "unlink", arity: -2, flags: write | fast, categories: catKeyspace, keys: manyKeys("RM", "delete"),
		group: "generic", since: "4.0.0", keyed: del,
		summary:    "Release the mutexes of lock keys, or empty queues, as DEL",
		complexity: "O(N) where N is the number of keys that will be removed.",
		tips:       []string{"request_policy:multi_shard", "response_policy:agg_sum"},
		args:       []argument{keysArg},
	},
}
