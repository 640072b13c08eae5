package script

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// samples are commands whose replies are of kinds that no command of a lock returns. These kinds
// are arrays, nil elements, nested arrays, maps, sets, doubles, verbatim strings, errors, and
// statuses in an array.
var samples = []string{
	"mget f:1 f:none f:2", "mget f:none", "lrange f:list 0 -1", "lrange f:none 0 -1", "lpop f:none 2", "hgetall f:hash", "hgetall f:none", "hmget f:hash a b",
	"smembers f:set", "smembers f:none", "smismember f:set a b", "zrange f:zset 0 -1 withscores", "zrange f:zset 0 -1", "zscore f:zset a", "zscore f:zset d", "zscore f:zset none",
	"zmscore f:zset a none b", "zrank f:zset none", "geopos f:geo a none", "xrange f:stream - +", "sscan f:set 0", "exists f:1 f:2", "get f:list", "incr f:list", "type f:list",
	"object help", "object encoding f:none", "lolwut version 5 1 1 1", "bitfield_ro f:1 get u8 0", "strlen f:none", "zrandmember f:none 2", "hrandfield f:hash 1 withvalues",
}

// fixtures are the commands that create the keys of the samples.
const fixtures = `set f:1 one
set f:2 2
rpush f:list a b 3
hset f:hash a 1
sadd f:set a
zadd f:zset 1 a 2.5 b -inf c 1e300 d
geoadd f:geo 13.361389 38.115556 a
xadd f:stream 1-1 a 1 b 2`

// programsHost is the Host of the programs. It implements commands of strings itself. For the
// samples, it has the replies of a real Redis.
type programsHost struct {
	keys    map[string]string
	replies [4]map[string]string // by version of RESP and command
}

func newProgramsHost(t *testing.T, dial func(proto int) *wire) *programsHost {
	h := &programsHost{keys: map[string]string{}}
	for command := range strings.SplitSeq(fixtures, "\n") {
		dial(2).do(t, strings.Fields(command)...)
	}
	for proto := 2; proto <= 3; proto++ {
		conn := dial(proto)
		h.replies[proto] = map[string]string{}
		for _, command := range samples {
			h.replies[proto][command] = conn.do(t, strings.Fields(command)...)
		}
	}
	return h
}

func (*programsHost) ForbidWrites() {}

func (h *programsHost) Call(args [][]byte, proto int) []byte {
	if reply, ok := h.replies[proto][string(bytes.Join(args, []byte(" ")))]; ok {
		return []byte(reply)
	}
	bulk := func(s string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(s), s) }
	name := string(args[0])
	arity, known := map[string]int{"echo": 2, "get": 2, "set": 3, "del": 2, "incr": 2}[name]
	switch {
	case !known:
		return []byte("-ERR Unknown Redis command called from script\r\n")
	case len(args) != arity:
		return []byte("-ERR Wrong number of args calling Redis command from script\r\n")
	}
	key := string(args[1])
	old, exists := h.keys[key]
	switch name {
	case "echo":
		return bulk(key)
	case "get":
		if !exists {
			return []byte("$-1\r\n")
		}
		return bulk(old)
	case "set":
		h.keys[key] = string(args[2])
		return []byte("+OK\r\n")
	case "del":
		delete(h.keys, key)
		if exists {
			return []byte(":1\r\n")
		}
		return []byte(":0\r\n")
	}
	n, err := strconv.ParseInt(old, 10, 64)
	if exists && (err != nil || strconv.FormatInt(n, 10) != old) {
		return []byte("-ERR value is not an integer or out of range\r\n")
	}
	h.keys[key] = strconv.FormatInt(n+1, 10)
	return fmt.Appendf(nil, ":%d\r\n", n+1)
}
