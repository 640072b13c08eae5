package commands

import (
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp"
)

func TestGenericCommandsReplyAsRedis(t *testing.T) {
	expectSameAsRedis(t, []string{
		"DEL none", "SET a 1", "SET b 2", "EXISTS a b a none", "DEL a a", "UNLINK b b none", "EXISTS a b",
		"SET a 1", "HSET h f v", "TYPE a", "TYPE h", "TYPE none", "DEL a h", "TYPE h", "DBSIZE",
		"DEL", "UNLINK", "EXISTS", "TYPE", "TYPE a b",
		"FLUSHALL x", "FLUSHDB x", "FLUSHALL ASYNC SYNC", "FLUSHALL ASYNC", "FLUSHDB sync", "FLUSHDB", "CONFIG SET lazyfree-lazy-user-flush",
		"MULTI", "SET a 1", "DEL a a", "EXISTS a", "SET a 2", "EXEC", "GET a",
	})
}

func TestAQueueExistsWhileItHasWaitersAndCannotBeDeleted(t *testing.T) {
	p := newEngineSite(t).dial()
	const q = "simba:{m}:contender"
	p.do("SET m w1")
	p.expect("TYPE "+q, "+none\r\n")
	p.expect("DEL "+q, ":0\r\n")
	for _, command := range []string{"DEL", "UNLINK"} {
		p.do("ZADD " + q + " 1 a 2 b 3 c")
		p.expect("TYPE "+q, "+zset\r\n")
		p.expect("EXISTS m "+q, ":2\r\n")
		p.expect(command+" "+q, ":1\r\n")
		p.expect("ZRANGE "+q+" 0 -1", bulks("a", "b", "c"))
	}
	p.expect("ZREM "+q+" a b c", ":3\r\n")
	p.expect("TYPE "+q, "+none\r\n")
	p.expect("GET m", bulk("w1"))
}

func TestFlushIsRefusedWhileLocksAreHeld(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("CONFIG GET flush-held-locks", bulks("flush-held-locks", "no"))
	for _, command := range []string{"FLUSHALL", "FLUSHDB ASYNC"} {
		p.expect(command, ok)
		p.do("SET a v PX 3600000")
		p.do("HSET b f v")
		p.expect(command, failed("ERR refused: 2 locks are held; CONFIG SET flush-held-locks yes allows it"))
		p.expect("EXISTS a b", ":2\r\n")
		p.expect("CONFIG SET flush-held-locks maybe", failed("ERR CONFIG SET failed (possibly related to argument 'flush-held-locks') - argument must be 'yes' or 'no'"))
		p.expect("CONFIG SET flush-held-locks YES", ok)
		p.expect(command, ok)
		p.expect("EXISTS a b", ":0\r\n")
		p.expect("CONFIG SET flush-held-locks no", ok)
	}
}

func TestFlushBreaksEveryTenure(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("CONFIG SET flush-held-locks yes", ok)
	for i := range 3000 {
		p.do("SET k" + decimal(int64(i)) + " v")
	}
	p.expect(`SET "\x00" v`, ok)
	p.expect("DBSIZE", ":3001\r\n")
	p.expect("FLUSHALL", ok)
	p.expect("DBSIZE", ":0\r\n")
}

// An engine without keys serves the keyspace commands that tools need, and refuses the others.
func TestKeyCommandsNeedTheEmbeddedEngine(t *testing.T) {
	backend := &fakeBackend{stats: simba.Stats{Held: 1}}
	p := newSite(t, Config{Backend: backend, Info: Info{Engine: "redis"}}).dial()
	for _, command := range []string{"GET k", "SET k v", "DEL k", "INCR k", "TTL k", "KEYS *", "FLUSHALL", "MSETNX k v", "DELEX k IFEQ v", "DELIFEQ k v", "EVAL x 0", "WATCH a"} {
		name := strings.ToLower(strings.Fields(command)[0])
		p.expect(command, failed("ERR '"+name+"' is served by the embedded engine only, and this server keeps its mutexes in redis"))
	}
	for command, reply := range map[string]string{
		"DBSIZE": ":1\r\n", "TYPE simba:{m}": "+none\r\n", "STRLEN simba:{m}": ":0\r\n", "SCAN 0": "*2\r\n" + bulk("0") + "*0\r\n", "UNWATCH": ok,
		"SCRIPT KILL":                           failed("ERR 'script|kill' is served by the embedded engine only, and this server keeps its mutexes in redis"),
		"CONFIG GET notify-keyspace-events":     bulks("notify-keyspace-events", ""),
		"CONFIG SET notify-keyspace-events KEA": failed("ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - can't set immutable config"),
	} {
		p.expect(command, reply)
	}
	p.expectTransaction("*1\r\n"+ok, "UNWATCH")
}
