package commands

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestHashesReplyAsRedis(t *testing.T) {
	expectSameAsRedis(t, []string{
		"HSET h", "HSET h a", "HSET h a b c", "HINCRBY h a", "HGET h", "HDEL h", "HGETALL h x",
		"HGET h a", "HGETALL h", "HDEL h a", "HEXISTS h a", "HLEN h", "HKEYS h",
		"HSET h a b", "HSET h a c", "HSET h a d b e a f", "HGETALL h", "hgetall h",
		"HGET h a", "HGET h e", "HGET h nope", "HKEYS h", "HLEN h", "HEXISTS h a", "HEXISTS h nope",
		"HINCRBY h c 5", "HINCRBY h c -10", "HINCRBY h n 3", "HINCRBY h a 1", "HINCRBY h c x", "HINCRBY h c 01", `HINCRBY h c ""`, "HINCRBY h c 9223372036854775808",
		"HINCRBY h n 9223372036854775807", "HINCRBY h m -9223372036854775808", "HINCRBY h m -1", "HINCRBY h m 9223372036854775807", "HGETALL h",
		`HSET h w " 1" v 01 u "" t -0`, "HINCRBY h w 1", "HINCRBY h v 1", "HINCRBY h u 1", "HINCRBY h t 1",
		"HDEL h nope", "HDEL h a a nope b", "HGETALL h", "HDEL h c d e n m w v u t", "HLEN h", "HGETALL h", "HDEL h a",
		"HINCRBY h count 1", "HGETALL h", "HDEL h count", "HGETALL h", "HDEL h a",
		`HSET "" "" ""`, `HGETALL ""`, `HSET "\x00\xff" "\r\n" "\x00"`, `HGETALL "\x00\xff"`, `HSET simba:{q}: a b`, "HGETALL simba:{q}:",
		"HSET simba:{spelled} a b", "HGET simba:{spelled} a",
		"SET s 1", "HSET s a b", "HSET s a", "HINCRBY s a 1", "HINCRBY s a x", "HGET s a", "HGETALL s", "HDEL s a", "HEXISTS s a", "HLEN s", "HKEYS s",
		"ZADD simba:{m}:contender 1 a", "HSET simba:{m}:contender a b", "HGET simba:{m}:contender a", "HGETALL simba:{m}:contender", "HDEL simba:{m}:contender a", "HINCRBY simba:{m}:contender a 1",
		"HGETALL simba:{other}:contender", "HDEL simba:{other}:contender a",
	})
}

func TestTheFirstFieldOfAHashIsTheOwner(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("HSET job worker:1 1 other 5", ":2\r\n")
	p.expectOwner("job", "worker:1")
	p.expect("HDEL job worker:1", ":1\r\n")
	p.expectOwner("job", "other")
}

func TestAHashIsBounded(t *testing.T) {
	p := newEngineSite(t).dial()
	tooLarge := failed(errHashTooLarge.Error())
	for i := range 8 {
		var fields strings.Builder
		for j := range maxHashFields / 8 {
			fmt.Fprintf(&fields, " f%d-%d v", i, j)
		}
		p.expect("HSET many"+fields.String(), ":128\r\n")
	}
	p.expect("HSET many one more", tooLarge)
	p.expect("HINCRBY many n 1", tooLarge)
	p.expect("HLEN many", ":1024\r\n")
	p.expect("HSET many f0-0 w", ":0\r\n")
	p.expect("HSET many f0-0 changed "+strings.Repeat("x", maxHashBytes-8)+" v", tooLarge)
	p.expect("HGET many f0-0", bulk("w"))
	p.expect("HSET many2 "+strings.Repeat("x", maxHashBytes/2)+" "+strings.Repeat("y", maxHashBytes/2), ":1\r\n")
	p.expect("HSET many2 a b", tooLarge)
	p.expect("HLEN many2", ":1\r\n")
}

func TestHashCommandsRefuseTheKeyOfAQueue(t *testing.T) {
	p := newEngineSite(t).dial()
	for _, command := range []string{"HSET %s a b", "HINCRBY %s a 1"} {
		name, _, _ := strings.Cut(strings.ToLower(command), " ")
		p.expect(fmt.Sprintf(command, "simba:{job}:contender"),
			failed("ERR '"+name+"' does not work on the queue of a mutex, which is a sorted set"))
	}
}

func TestCommandsOfOtherTypesAreRefusedWithAReason(t *testing.T) {
	p := newEngineSite(t).dial()
	for command, name := range map[string]string{"LPUSH l a": "lpush", "sadd s a": "sadd", "XADD": "xadd", "ZUNIONSTORE a 1 b": "zunionstore", "Rename a b": "rename", "HMSET h a b": "hmset", "touch k": "touch", "EVAL_RO x 0": "eval_ro"} {
		p.expect(command, failed("ERR '"+name+"' is not served: this is a lock server, its keys are locks (strings, hashes) and queues"))
	}
	p.expect("EVAL return(redis.call('hmset','h','a','b')) 0", failed("ERR 'hmset' is not served: this is a lock server, its keys are locks (strings, hashes) and queues script: fe5c9c92d7275931dd3fece18bcf1880582d568b, on @user_script:1."))
	p.expect("COMMAND INFO lpush", "*1\r\n$-1\r\n")
	if !slices.IsSorted(unserved) {
		t.Error("unserved is not sorted")
	}
	known := newTable(families())
	for _, name := range unserved {
		if known.byName[name] != nil {
			t.Errorf("%s is in unserved, but the table has it", name)
		}
	}
}
