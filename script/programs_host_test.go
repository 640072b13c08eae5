package script

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// samples are commands whose replies are of kinds that the commands of programsHost do not return.
var samples = []string{
	"mget f:1 f:none f:2", "mget f:none", "hgetall f:hash", "hgetall f:none", "hmget f:hash a b", "zrange f:zset 0 -1 withscores", "zrange f:zset 0 -1",
	"zscore f:zset d", "zscore f:zset none", "zrank f:zset none", "geopos f:geo a none", "exists f:1 f:2", "hget f:1 a", "incr f:hash", "type f:hash",
}

// fixtures are the commands that create the keys of the samples.
const fixtures = `set f:1 one
set f:2 2
hset f:hash a 1
zadd f:zset 1 a 2.5 b -inf c 1e300 d
geoadd f:geo 13.361389 38.115556 a`

// programsHost is the Host of the programs. It implements commands of strings itself. For the
// samples, it has the replies of a real Redis.
type programsHost struct {
	keys    map[string]string
	replies map[string]string // by command
}

func newProgramsHost(t *testing.T, redis *wire) *programsHost {
	h := &programsHost{keys: map[string]string{}, replies: map[string]string{}}
	for command := range strings.SplitSeq(fixtures, "\n") {
		redis.do(t, strings.Fields(command)...)
	}
	for _, command := range samples {
		h.replies[command] = redis.do(t, strings.Fields(command)...)
	}
	return h
}

func (*programsHost) ForbidWrites() {}

func (h *programsHost) Call(args [][]byte) []byte {
	if reply, ok := h.replies[string(bytes.Join(args, []byte(" ")))]; ok {
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
