package commands

import (
	"strings"
	"testing"
)

func TestQueuesReplyAsRedis(t *testing.T) {
	const z = "simba:{m}:contender"
	commands := []string{
		"ZADD Z", "ZADD Z 1", "ZADD Z NX", "ZADD Z 1 a 2", "ZREM Z", "ZRANGE Z 0", "ZCARD Z a",
		"ZSCORE Z a", "ZCARD Z", "ZRANGE Z 0 -1", "ZREM Z a",
		"ZADD Z 0.1 a 1700000000.123 b 1.5 c 1e300 d -inf e 1e21 f 1e20 g 123456789012345680 h 1e-7 i 0.00001 j 1e17 k -0 l 3 m", "ZRANGE Z 0 -1 WITHSCORES",
		"ZSCORE Z a", "ZSCORE Z l", "ZSCORE Z nope", "ZCARD Z",
		"ZADD Z NX 7 a 8 n", "ZADD Z 7 a",
		"ZSCORE Z zero",
		"ZADD Z 31 tw 32 tw", "ZADD Z NX 33 tw 34 tv 35 tv", "ZRANGE Z 0 -1 WITHSCORES",
		"ZRANGE Z 0 1", "ZRANGE Z 0 -2", "ZRANGE Z -2 -1", "ZRANGE Z -100 100", "ZRANGE Z 3 2", "ZRANGE Z 100 200", "ZRANGE Z -1 -100", "ZRANGE Z 2 4 WITHSCORES", "ZRANGE Z 2 4 withscores WITHSCORES",
		"ZREVRANGE Z 0 1 WITHSCORES", "ZREVRANGE Z -1 -1", "ZREVRANGE Z 0 -1", "ZREVRANGE Z 5 3",
		"ZRANGE Z a b", "ZRANGE Z 0 b", "ZRANGE Z 0 -1 nonsense",
		"ZREM Z a nope a b", "ZREM Z nope", "ZRANGE Z 0 -1", "ZREM Z c d e f g h i j k l m n tw tv", "ZCARD Z", "ZRANGE Z 0 -1",
		`ZADD Z 1 ""`, `ZADD Z 2 "\x00\r\n\xff"`, "ZRANGE Z 0 -1 WITHSCORES", `ZSCORE Z ""`, `ZREM Z "" "\x00\r\n\xff"`, "ZCARD Z",
		"ZCARD none", "ZRANGE none 0 -1", "ZRANGE none a b", "ZSCORE none a", "ZREM none a",
	}
	for _, score := range []string{`""`, "x", "nan", "NaN", "inf", "-inf", "+inf", "Infinity", "infx", "1.", ".5", ".", "+1", "--1", "+-1", `" 1"`, `"1 "`, "1_0", "0x_1p-2", "0x", "0x.p1", "1e", "1e5", "1E+5", "1e400", "-1e400", "0e-400", "4.9e-324", "1e-310", "1,5"} {
		commands = append(commands, "ZADD Z "+score+" "+score, "ZRANGE Z 0 -1 WITHSCORES", "ZREM Z "+score)
	}
	commands = append(commands, "ZADD Z 1 a", "GET Z", "SET s 1", "ZADD s 1 a", "ZADD s x a", "ZREM s a", "ZRANGE s 0 -1", "ZRANGE s a b", "ZREVRANGE s 0 -1", "ZSCORE s a", "ZCARD s",
		"HSET h a b", "ZADD h 1 a", "ZCARD h")
	for i, c := range commands {
		commands[i] = strings.Replace(c, " Z", " "+z, 1)
	}
	expectSameAsRedis(t, commands)
}

func TestTheQueueOfAMutexIsASortedSet(t *testing.T) {
	s := newEngineSite(t)
	p, waiter := s.dial(), s.dial()
	p.do("SIMBA.ACQUIRE job first 60000")
	p.do("SIMBA.ACQUIRE job second 60000")
	waiter.send("SIMBA.ACQUIRE job third 60000 WAIT 60000")
	for p.do("ZCARD simba:{job}:contender") != ":2\r\n" {
	}
	p.expect("ZRANGE simba:{job}:contender 0 -1", bulks("second", "third"))
	p.expect("ZADD simba:{job}:contender 1 early", ":1\r\n")
	p.expect("ZADD simba:{job}:contender NX 1 third", ":0\r\n")
	p.expect("ZRANGE simba:{job}:contender 0 -1", bulks("early", "second", "third"))
	p.expect("ZADD simba:{job}:contender 0.5 third", ":0\r\n")
	p.expect("ZRANGE simba:{job}:contender 0 -1", bulks("third", "early", "second"))
	p.do("SIMBA.RELEASE job first")
	if reply := waiter.reply(); !strings.Contains(reply, bulk("third")) {
		t.Errorf("the waiter third got %q, want the mutex: it is first in the queue", reply)
	}
	p.expect("ZRANGE simba:{job}:contender 0 -1", bulks("early", "second"))
	p.expect("ZREM simba:{job}:contender early", ":1\r\n")
	p.expect("ZRANGE simba:{job}:contender 0 -1", bulks("second"))
}

func TestOptionsThatNoLockNeedsAreRefused(t *testing.T) {
	p := newEngineSite(t).dial()
	for _, command := range []string{"ZADD simba:{job}:contender INCR 1 a", "ZADD simba:{job}:contender GT 1 a", "ZADD simba:{job}:contender XX 1 a", "ZADD simba:{job}:contender CH 1 a"} {
		p.expect(command, failed(string(errAddOption)))
	}
	for _, option := range []string{"REV", "BYSCORE", "BYLEX", "LIMIT 0 1"} {
		p.expect("ZRANGE simba:{job}:contender 0 -1 "+option, failed(string(errRangeOption)))
	}
}

func TestASortedSetIsOnlyAQueue(t *testing.T) {
	p := newEngineSite(t).dial()
	refused := failed("ERR 'zadd' works only on the queue of a mutex, simba:{mutex}:contender: this is a lock server")
	for _, key := range []string{"z", "simba:{z}", "simba:{}:contender", "z:contender", "simba:{z}:waiting"} {
		p.expect("ZADD "+key+" 1 a", refused)
		p.expect("zadd "+key+" NX 1 a", refused)
	}
}
