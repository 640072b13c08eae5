package commands

import (
	"slices"
	"strings"
)

// unserved are the commands of Redis 7.0 that work on keys, also by a script, and that this server
// does not have, sorted. They come from COMMAND LIST FILTERBY ACLCAT of Redis, for each data type
// and for keyspace.
var unserved = []string{
	"append", "bitcount", "bitfield", "bitfield_ro", "bitop", "bitpos", "blmove", "blmpop",
	"blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax", "bzpopmin", "copy", "dump", "eval_ro",
	"evalsha_ro", "geoadd", "geodist", "geohash", "geopos", "georadius", "georadius_ro",
	"georadiusbymember", "georadiusbymember_ro", "geosearch", "geosearchstore", "getbit",
	"getdel", "getex", "hincrbyfloat", "hmget", "hmset", "hrandfield", "hscan", "hsetnx",
	"hstrlen", "hvals", "incrbyfloat", "lcs", "lindex", "linsert", "llen", "lmove", "lmpop",
	"lpop", "lpos", "lpush", "lpushx", "lrange", "lrem", "lset", "ltrim", "migrate", "move",
	"object", "pfadd", "pfcount", "pfmerge", "randomkey", "rename", "renamenx", "restore", "rpop",
	"rpoplpush", "rpush", "rpushx", "sadd", "scard", "sdiff", "sdiffstore", "setbit", "setrange",
	"sinter", "sintercard", "sinterstore", "sismember", "smembers", "smismember", "smove", "sort",
	"sort_ro", "spop", "srandmember", "srem", "sscan", "substr", "sunion", "sunionstore", "touch",
	"xack", "xadd", "xautoclaim", "xclaim", "xdel", "xgroup", "xinfo", "xlen", "xpending",
	"xrange", "xread", "xreadgroup", "xrevrange", "xsetid", "xtrim", "zcount", "zdiff",
	"zdiffstore", "zincrby", "zinter", "zintercard", "zinterstore", "zlexcount", "zmpop",
	"zmscore", "zpopmax", "zpopmin", "zrandmember", "zrangebylex", "zrangebyscore", "zrangestore",
	"zrank", "zremrangebylex", "zremrangebyrank", "zremrangebyscore", "zrevrangebylex",
	"zrevrangebyscore", "zrevrank", "zscan", "zunion", "zunionstore",
}

// notServed returns the error for a command in unserved, nil for any other name. The table does not
// have these commands, because COMMAND shows the table to clients.
func notServed(name []byte) error {
	lower := strings.ToLower(string(shorten(name)))
	if _, found := slices.BinarySearch(unserved, lower); !found {
		return nil
	}
	return replyErrorf("ERR '%s' is not served: this is a lock server, its keys are locks (strings, hashes) and queues", lower)
}
