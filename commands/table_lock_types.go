package commands

import (
	"slices"
	"strings"
)

// oneKey is the first argument, as a key that is used so.
func oneKey(flags ...string) keys { return keys{1, 1, 1, flags} }

// Arguments that most of these commands take.
var (
	keyArg     = argument{name: "key", kind: key}
	fieldArg   = argument{name: "field", kind: str}
	fieldsArg  = argument{name: "field", kind: str, multiple: true}
	valueArg   = argument{name: "value", kind: str}
	fieldValue = argument{name: "field_value", kind: block, multiple: true, args: []argument{fieldArg, valueArg}}

	memberArg   = argument{name: "member", kind: str}
	startArg    = argument{name: "start", kind: integer}
	stopArg     = argument{name: "stop", kind: integer}
	withScores  = argument{name: "withscores", token: "WITHSCORES", kind: pureToken, optional: true}
	limitOption = argument{name: "offset_count", token: "LIMIT", kind: block, optional: true, args: []argument{
		{name: "offset", kind: integer}, {name: "count", kind: integer},
	}}
)

// A hash is a lock: the field that was set first is its owner.
var hashCommands = []command{
	{
		name: "hset", arity: -4, flags: write | denyoom | fast, categories: catHash, keys: oneKey("RW", "update"), actor: fieldValues,
		group: "hash", since: "2.0.0", keyed: hset,
		summary:    "Set the string value of a hash field; the first field of a hash takes the mutex",
		complexity: "O(N) for every field/value pair, with N fields in the hash",
		args:       []argument{keyArg, fieldValue},
	},
	{
		name: "hsetnx", arity: 4, flags: write | denyoom | fast, categories: catHash, keys: oneKey("RW", "insert"), actor: oneValue,
		group: "hash", since: "2.0.0", keyed: hsetnx,
		summary:    "Set the value of a hash field, only if the field does not exist",
		complexity: "O(N) with N fields in the hash",
		args:       []argument{keyArg, fieldArg, valueArg},
	},
	{
		name: "hmset", arity: -4, flags: write | denyoom | fast, categories: catHash, keys: oneKey("RW", "update"), actor: fieldValues,
		group: "hash", since: "2.0.0", keyed: hmset,
		summary:    "Set multiple hash fields to multiple values",
		complexity: "O(N) for every field/value pair, with N fields in the hash",
		args:       []argument{keyArg, fieldValue},
	},
	{
		name: "hget", arity: 3, flags: readonly | fast, categories: catHash, keys: oneKey("RO", "access"),
		group: "hash", since: "2.0.0", keyed: reading(hget),
		summary:    "Get the value of a hash field",
		complexity: "O(N) with N fields in the hash",
		args:       []argument{keyArg, fieldArg},
	},
	{
		name: "hmget", arity: -3, flags: readonly | fast, categories: catHash, keys: oneKey("RO", "access"),
		group: "hash", since: "2.0.0", keyed: reading(hmget),
		summary:    "Get the values of all the given hash fields",
		complexity: "O(N) for every field, with N fields in the hash",
		args:       []argument{keyArg, fieldsArg},
	},
	{
		name: "hgetall", arity: 2, flags: readonly, categories: catHash, keys: oneKey("RO", "access"),
		group: "hash", since: "2.0.0", keyed: reading(hgetall),
		summary:    "Get all the fields and values in a hash",
		complexity: "O(N) with N fields in the hash",
		tips:       []string{"nondeterministic_output_order"},
		args:       []argument{keyArg},
	},
	{
		name: "hdel", arity: -3, flags: write | fast, categories: catHash, keys: oneKey("RW", "delete"),
		group: "hash", since: "2.0.0", keyed: hdel,
		summary:    "Delete one or more hash fields; without a field left, the mutex is free",
		complexity: "O(N) with N fields in the hash",
		args:       []argument{keyArg, fieldsArg},
	},
	{
		name: "hexists", arity: 3, flags: readonly | fast, categories: catHash, keys: oneKey("RO"),
		group: "hash", since: "2.0.0", keyed: reading(hexists),
		summary:    "Determine if a hash field exists",
		complexity: "O(N) with N fields in the hash",
		args:       []argument{keyArg, fieldArg},
	},
	{
		name: "hincrby", arity: 4, flags: write | denyoom | fast, categories: catHash, keys: oneKey("RW", "access", "update"), actor: oneValue,
		group: "hash", since: "2.0.0", keyed: hincrby,
		summary:    "Increment the integer value of a hash field by the given number",
		complexity: "O(N) with N fields in the hash",
		args:       []argument{keyArg, fieldArg, {name: "increment", kind: integer}},
	},
	{
		name: "hlen", arity: 2, flags: readonly | fast, categories: catHash, keys: oneKey("RO"),
		group: "hash", since: "2.0.0", keyed: reading(hlen),
		summary:    "Get the number of fields in a hash",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
	{
		name: "hkeys", arity: 2, flags: readonly, categories: catHash, keys: oneKey("RO", "access"),
		group: "hash", since: "2.0.0", keyed: reading(hkeys),
		summary:    "Get all the fields in a hash",
		complexity: "O(N) with N fields in the hash",
		tips:       []string{"nondeterministic_output_order"},
		args:       []argument{keyArg},
	},
	{
		name: "hvals", arity: 2, flags: readonly, categories: catHash, keys: oneKey("RO", "access"),
		group: "hash", since: "2.0.0", keyed: reading(hvals),
		summary:    "Get all the values in a hash",
		complexity: "O(N) with N fields in the hash",
		tips:       []string{"nondeterministic_output_order"},
		args:       []argument{keyArg},
	},
}

// The sorted set simba:{m}:contender is the queue of mutex m.
var queueCommands = []command{
	{
		name: "zadd", arity: -4, flags: write | denyoom | fast, categories: catSortedSet, keys: oneKey("RW", "update"), actor: newMembers,
		group: "sorted-set", since: "1.2.0", keyed: zadd,
		summary:    "Add one or more contenders to the queue of a mutex, or move them in it",
		complexity: "O(N) with N members of the queue",
		args: []argument{keyArg,
			{name: "condition", kind: oneof, optional: true, args: []argument{
				{name: "nx", token: "NX", kind: pureToken}, {name: "xx", token: "XX", kind: pureToken},
			}},
			{name: "comparison", kind: oneof, optional: true, args: []argument{
				{name: "gt", token: "GT", kind: pureToken}, {name: "lt", token: "LT", kind: pureToken},
			}},
			{name: "change", token: "CH", kind: pureToken, optional: true},
			{name: "increment", token: "INCR", kind: pureToken, optional: true},
			{name: "score_member", kind: block, multiple: true, args: []argument{{name: "score", kind: double}, memberArg}},
		},
	},
	{
		name: "zrem", arity: -3, flags: write | fast, categories: catSortedSet, keys: oneKey("RW", "delete"), actor: oldMembers,
		group: "sorted-set", since: "1.2.0", keyed: zrem,
		summary:    "Remove one or more contenders from the queue of a mutex; if the mutex is free, it is their turn",
		complexity: "O(N) with N members of the queue",
		args:       []argument{keyArg, {name: "member", kind: str, multiple: true}},
	},
	{
		name: "zpopmin", arity: -2, flags: write | fast, categories: catSortedSet, keys: oneKey("RW", "access", "delete"),
		group: "sorted-set", since: "5.0.0", keyed: zpopmin,
		summary:    "Remove and return the next contenders from the queue of a mutex; if the mutex is free, it is their turn",
		complexity: "O(M) with M contenders returned",
		args:       []argument{keyArg, {name: "count", kind: integer, optional: true}},
	},
	{
		name: "zrange", arity: -4, flags: readonly, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "1.2.0", keyed: ranging(queueRange{}, true),
		summary:    "Return a range of contenders in the queue of a mutex",
		complexity: "O(log(N)+M) with N members of the queue and M contenders returned",
		args: []argument{keyArg, {name: "start", kind: str}, {name: "stop", kind: str},
			{name: "byscore", token: "BYSCORE", kind: pureToken, optional: true},
			{name: "rev", token: "REV", kind: pureToken, optional: true}, limitOption, withScores},
	},
	{
		name: "zrevrange", arity: -4, flags: readonly, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "1.2.0", keyed: ranging(queueRange{reverse: true}, false),
		summary:    "Return a range of contenders in the queue of a mutex, by index, the last one first",
		complexity: "O(M) with M contenders returned",
		args:       []argument{keyArg, startArg, stopArg, withScores},
	},
	{
		name: "zrangebyscore", arity: -4, flags: readonly, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "1.0.5", keyed: ranging(queueRange{byScore: true}, false),
		summary:    "Return a range of contenders in the queue of a mutex, by score",
		complexity: "O(log(N)+M) with N members of the queue and M contenders returned",
		args:       []argument{keyArg, {name: "min", kind: double}, {name: "max", kind: double}, withScores, limitOption},
	},
	{
		name: "zrank", arity: 3, flags: readonly | fast, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "2.0.0", keyed: placing(zrank),
		summary:    "Determine the index of a contender in the queue of a mutex",
		complexity: "O(N) with N members of the queue",
		args:       []argument{keyArg, memberArg},
	},
	{
		name: "zrevrank", arity: 3, flags: readonly | fast, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "2.0.0", keyed: placing(zrevrank),
		summary:    "Determine the index of a contender in the queue of a mutex, counted from its end",
		complexity: "O(N) with N members of the queue",
		args:       []argument{keyArg, memberArg},
	},
	{
		name: "zscore", arity: 3, flags: readonly | fast, categories: catSortedSet, keys: oneKey("RO", "access"),
		group: "sorted-set", since: "1.2.0", keyed: zscore,
		summary:    "Get the score of a contender in the queue of a mutex: when it came, in Unix seconds",
		complexity: "O(N) with N members of the queue",
		args:       []argument{keyArg, memberArg},
	},
	{
		name: "zcard", arity: 2, flags: readonly | fast, categories: catSortedSet, keys: oneKey("RO"),
		group: "sorted-set", since: "1.2.0", keyed: zcard,
		summary:    "Get the number of contenders in the queue of a mutex",
		complexity: "O(1)",
		args:       []argument{keyArg},
	},
}

// unserved are the other commands of Redis 7.0 that work on keys, sorted: what COMMAND LIST
// FILTERBY ACLCAT says for each data type and for keyspace, less what this server has.
var unserved = []string{
	"append", "bitcount", "bitfield", "bitfield_ro", "bitop", "bitpos", "blmove", "blmpop",
	"blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax", "bzpopmin", "copy", "dump", "geoadd",
	"geodist", "geohash", "geopos", "georadius", "georadius_ro", "georadiusbymember",
	"georadiusbymember_ro", "geosearch", "geosearchstore", "getbit", "getrange", "hincrbyfloat",
	"hrandfield", "hscan", "hstrlen", "incrbyfloat", "lcs", "lindex", "linsert", "llen", "lmove",
	"lmpop", "lpop", "lpos", "lpush", "lpushx", "lrange", "lrem", "lset", "ltrim", "migrate",
	"move", "mset", "msetnx", "object", "pfadd", "pfcount", "pfmerge", "rename", "renamenx",
	"restore", "rpop", "rpoplpush", "rpush", "rpushx", "sadd", "scard", "sdiff", "sdiffstore",
	"setbit", "setrange", "sinter", "sintercard", "sinterstore", "sismember", "smembers",
	"smismember", "smove", "sort", "sort_ro", "spop", "srandmember", "srem", "sscan", "substr",
	"sunion", "sunionstore", "xack", "xadd", "xautoclaim", "xclaim", "xdel", "xgroup", "xinfo",
	"xlen", "xpending", "xrange", "xread", "xreadgroup", "xrevrange", "xsetid", "xtrim",
	"zcount", "zdiff", "zdiffstore", "zincrby", "zinter", "zintercard", "zinterstore",
	"zlexcount", "zmpop", "zmscore", "zpopmax", "zrandmember", "zrangebylex", "zrangestore",
	"zremrangebylex", "zremrangebyrank", "zremrangebyscore", "zrevrangebylex",
	"zrevrangebyscore", "zscan", "zunion", "zunionstore",
}

// notServed is the error of a command for data types that a lock server has not, nil for a
// name that Redis does not know either. Such a command is not in the table: COMMAND tells
// clients what they can use.
func notServed(name []byte) error {
	lower := strings.ToLower(string(shorten(name)))
	if _, found := slices.BinarySearch(unserved, lower); !found {
		return nil
	}
	return replyErrorf("ERR '%s' is not served: this is a lock server, its keys are locks (strings, hashes) and queues", lower)
}
