package commands

import (
	"fmt"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp"
)

func TestStringsReplyAsRedis(t *testing.T) {
	expectSameAsRedis(t, []string{
		"GET k", "SET k v", "GET k", "SET k v NX", "SET k w XX", "GET k", "SET none w XX", "SET k x GET", "SET none x XX GET", "SET k y NX GET", "GET k", "SET fresh y NX GET", "GET fresh",
		"SET k v EX 0", "SET k v EX -1", "SET k v PX x", "SET k v EX 9223372036854775807", "SET k v PX 9223372036854775807", "SET k v EX 99999999999999999999",
		"SET k v EX", "SET k v NX XX", "SET k v XX NX", "SET k v EX 10 PX 10", "SET k v KEEPTTL EX 10", "SET k v EX 10 KEEPTTL", "SET k v PERSIST", "SET k v nonsense", "SET k v NX NX GET GET", "SET k v EX 10 EX x",
		"set k v ex 10 EX 1000", "TTL k", "SET k w keepttl", "TTL k", "SET k w", "TTL k", "SET k w KEEPTTL", "TTL k",
		"SET k v EXAT 4000000000", "EXPIRETIME k", "PEXPIRETIME k", "SET k v2 KEEPTTL", "PEXPIRETIME k", "SET k v2 PXAT 4000000000499", "PEXPIRETIME k", "EXPIRETIME k", "SET k v2 PXAT 4000000000500", "EXPIRETIME k", "SET k v PXAT 1", "EXISTS k", "SET k v EXAT 1 NX", "EXISTS k", "SET k v EXAT 0",
		"SETNX k a", "SETNX k b", "GET k", "SETEX k 0 v", "SETEX k x v", "SETEX k 1000 v", "TTL k", "PSETEX k -1 v", "PSETEX k 1000000 v", "TTL k", "GET k",
		"GETSET k w", "TTL k", "GETSET none w", "GET none", "EXISTS none",
		"TTL k", "GET k",
		"SET a 1", "MGET a none a", "STRLEN a", "STRLEN none", `SET "" ""`, `GET ""`, `STRLEN ""`, `SET "\x00\xff\r\n" "\r\n\x00\xfe"`, `GET "\x00\xff\r\n"`, `STRLEN "\x00\xff\r\n"`,
		"HSET h f v", "GET h", "SET h v GET", "SET h v NX GET", "SET h v NX", "SETNX h v", "GETSET h v", "MGET h a", "STRLEN h", "INCR h", "TYPE h", "SET h v", "TYPE h", "GET h",
		"MSET a 1 b 2 c 3", "MGET a b c", "TTL a", "MSET a", "MSET", "MSET a 1 b", "msetnx a 1 b", "MSETNX d 1 a 2", "EXISTS d", "MSETNX d 1 e 2", "MGET d e", "MSETNX d 1", "MSETNX x 1 x 2", "GET x", "MSET x 3 x 4", "GET x",
		"SET a 1 EX 1000", "MSET a 1 h2 2", "TTL a", "HSET h2 f v", "MSETNX h2 1 f 1", "MSET h2 1", "TYPE h2", "EXISTS f", `MSET "" "" "\x00" "\r\n"`, `MGET "" "\x00"`,
		"SET r Hello-World", "GETRANGE r 0 3", "GETRANGE r 0 -1", "GETRANGE r -4 -1", "GETRANGE r 5 3", "GETRANGE r 5 5000", "GETRANGE r -5000 10000", "GETRANGE r 0 -100", "GETRANGE r 1 -100", "GETRANGE r -1 -100",
		"GETRANGE r -100 -99", "GETRANGE r -100 -101", "GETRANGE r 0 4294967297", "GETRANGE r -9223372036854775808 9223372036854775807", "GETRANGE r 9223372036854775807 9223372036854775807", "GETRANGE r x 1", "GETRANGE r 1 x", "GETRANGE none 0 -1", "GETRANGE none x 1",
		"GETRANGE h 0 -1", `GETRANGE "" 0 -1`, `GETRANGE "" 0 -100`, "HSET hash f v", "GETRANGE hash 0 -1", "GETRANGE hash 0 x", "GETRANGE r 0",
		// Of newer servers. Lock libraries fall back to scripts only if the error has these words.
		"DIGEST k", "MSETEX 1 k v", "SET k v IFNE v", "set k v ifdeq v PX 1000", "SET k v PX 1000 IFDNE v", "MULTI", "DIGEST k", "EXEC", "MULTI", "SET k v IFNE v", "EXEC",
		"SET", "SET k", "GET", "GET a b", "SETEX k 1", "MGET",
	})
}

func TestCountersReplyAsRedis(t *testing.T) {
	expectSameAsRedis(t, []string{
		"INCR n", "INCR n", "DECR n", "INCRBY n 40", "DECRBY n -1", "GET n", "TTL n", "INCRBY n x", "INCRBY n 1.5", "INCRBY n 9223372036854775808", "DECRBY n -9223372036854775808", "DECRBY n x",
		"SET n 9223372036854775807", "INCR n", "INCRBY n -1", "INCRBY n 2", "SET n -9223372036854775808", "DECR n", "INCRBY n -1", "DECRBY n 1", "DECRBY n -1", "GET n",
		"DECR m", "SET n 9223372036854775808", "INCR n", `SET n ""`, "INCR n", "SET n 01", "INCR n", "SET n +1", "INCR n", `SET n " 1"`, "INCR n", "SET n -0", "INCR n", "SET n -5", "INCR n",
		"SET n 5 PXAT 4000000000000", "INCR n", "PEXPIRETIME n", "INCR", "INCR a b", "INCRBY a",
	})
}

func TestALockKeyIsAMutex(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("SET orders w1 NX PX 3600000", ok)
	if got := p.do("SIMBA.OWNER orders"); !strings.Contains(got, bulk("owner")+bulk("w1")) {
		t.Errorf("SIMBA.OWNER replied %q, want w1", got)
	}
	for _, key := range []string{"orders", "simba:{orders}"} {
		p.expect("SET "+key+" w2 NX PX 3600000", "$-1\r\n")
		p.expect("GET "+key, bulk("w1"))
	}
	if got := p.do("SIMBA.ACQUIRE orders w2 3600000"); !strings.Contains(got, "queued") {
		t.Errorf("the ACQUIRE of a second contender replied %q, want queued", got)
	}
	p.expect("EXISTS simba:{orders}:contender", ":1\r\n")
	p.expect("SIMBA.RELEASE orders w1", ":1\r\n")
	if got := p.do("SIMBA.ACQUIRE jobs w3 3600000"); !strings.Contains(got, "acquired") {
		t.Errorf("SIMBA.ACQUIRE replied %q, want acquired", got)
	}
	p.expect("GET jobs", bulk("w3"))
	p.expect("SETNX simba:{jobs} w4", ":0\r\n")
	p.expect("DEL simba:{jobs}", ":1\r\n")
	p.expect("SIMBA.OWNER jobs", "$-1\r\n")
}

func TestATenureLastsUntilAnotherValueIsSet(t *testing.T) {
	p := newEngineSite(t).dial()
	for _, row := range []struct {
		before   string
		commands []string
		keep     bool
	}{
		{"SET m w1 PX 3600000", []string{"SET m w1 PX 7200000", "SET m w1 XX", "SET m w1 KEEPTTL", "SET m w1", "SETEX m 100 w1", "GETSET m w1", "MSET m w1 b w2"}, true},
		{"SET m 1", []string{"INCR m", "DECRBY m 5"}, true},
		{"SIMBA.ACQUIRE m w1 1000000 TRANSITION 1000000", []string{"EXPIRE m 5000", "PEXPIREAT m 4000000000000", "PERSIST m"}, true},
		{"HSET m w1 1 other 5", []string{"HINCRBY m w1 1", "HSET m third 1", "HDEL m other", "HDEL m w1"}, true},
		{"SET m w0", []string{"SET m w1 PX 3600000", "SET m w2 XX KEEPTTL", "SETEX m 100 w3", "GETSET m w4", "SET m w5 GET", "MSET m w6 b w2"}, false},
		{"HSET m w1 1", []string{"SET m w1"}, false},
	} {
		p.do("DEL m")
		p.do(row.before)
		for _, command := range row.commands {
			before := p.token("m")
			if reply := p.do(command); reply[0] == '-' {
				t.Errorf("%s replied %q", command, reply)
			}
			if kept := p.token("m") == before; kept != row.keep {
				t.Errorf("%s, then %s: the tenure has the same token: %v, want %v", row.before, command, kept, row.keep)
			}
		}
	}
	if got := p.do("SIMBA.HISTORY m COUNT 100"); strings.Count(got, bulk("broken")) != 7 {
		t.Errorf("SIMBA.HISTORY replied %q, want 7 broken tenures", got)
	}
	p.expect("MSETNX x w1 y w1", ":1\r\n")
	if x, y := p.token("x"), p.token("y"); x == y {
		t.Errorf("two keys of MSETNX have the token %s", x)
	}
}

func TestOnlySetWithoutNXIgnoresAReservation(t *testing.T) {
	s := newEngineSite(t)
	p, waiter := s.dial(), s.dial()
	reserve := func(contender string) {
		waiter.do("SUBSCRIBE simba:{m}:" + contender)
		p.expect("SET m w1", ok)
		p.do("SIMBA.ACQUIRE m " + contender + " 3600000")
		p.expect("DEL m", ":1\r\n")
	}
	reserve("w2")
	for command, reply := range map[string]string{
		"SET m w3 NX": "$-1\r\n", "SETNX m w3": ":0\r\n", "SET m w3 NX PX 1000": "$-1\r\n", "SET m w3 NX PXAT 1": "$-1\r\n", "SET m w3 XX": "$-1\r\n",
		"MSETNX a w3 m w3 b w3": ":0\r\n", `EVAL "return redis.call('msetnx', 'a', 'w3', 'm', 'w3', 'b', 'w3')" 0`: ":0\r\n",
	} {
		p.expect(command, reply)
		p.expect("EXISTS a m b", ":0\r\n")
	}
	p.expect("MSETNX a w2 m w2", ":1\r\n")
	reserve("w4")
	p.expect("SET m w3", ok)
	p.expect("GET m", bulk("w3"))
}

func TestValuesAndKeysAreKeptByteForByte(t *testing.T) {
	p := newEngineSite(t).dial()
	all := make([]byte, 64<<10)
	for i := range all {
		all[i] = byte(i)
	}
	long := fmt.Sprintf("%q", all)
	p.expect("SET k "+long, ok)
	p.expect("GET k", bulk(string(all)))
	p.expect("SET "+long+" v", ok)
	p.expect("GET "+long, bulk("v"))
	p.expect("EXISTS "+long+" k", ":2\r\n")
}

func TestLeasesLongerThanAHundredYearsAreRefused(t *testing.T) {
	p := newEngineSite(t).dial()
	p.do("SET k v")
	most := int64(simba.MaxLockTTL.Seconds())
	for command, name := range map[string]string{
		fmt.Sprintf("SET k w EX %d", most+1): "set", fmt.Sprintf("SET k w PX %d001", most): "set", fmt.Sprintf("SETEX k %d w", most+1): "setex",
		fmt.Sprintf("EXPIRE k %d", most+1): "expire", "PEXPIREAT k 9223372036854775807": "pexpireat",
	} {
		p.expect(command, failed("ERR invalid expire time in '"+name+"' command"))
	}
	p.expect("GET k", bulk("v"))
	p.expect("TTL k", ":-1\r\n")
	p.expect(fmt.Sprintf("SET k w EX %d", most), ok)
}

func TestAQueueCannotBecomeALock(t *testing.T) {
	p := newEngineSite(t).dial()
	const q = "simba:{m}:contender"
	for range 2 { // an empty queue, then one with a waiter
		for _, command := range []string{"SET " + q + " v", "SETEX " + q + " 10 v", "PSETEX " + q + " 10 v"} {
			name := strings.ToLower(strings.Fields(command)[0])
			p.expect(command, failed("ERR '"+name+"' cannot make a lock of '"+q+"': it is the queue of a mutex"))
		}
		p.do("ZADD " + q + " 1 a")
	}
	const wrong = "WRONGTYPE Operation against a key holding the wrong kind of value"
	for _, command := range []string{"GET " + q, "GETSET " + q + " v", "INCR " + q, "STRLEN " + q, "SET " + q + " v GET"} {
		p.expect(command, failed(wrong))
	}
	p.expect("SET "+q+" v NX", "$-1\r\n")
	p.expect("SETNX "+q+" v", ":0\r\n")
	p.expect("MGET "+q, "*1\r\n$-1\r\n")
	p.expect("ZCARD "+q, ":1\r\n")
}

// The replies of Redis 8.4 and Valkey 9.0, whose sources and tests say so. The Redis of these tests
// is older.
var compareAndSet = []struct{ command, reply string }{
	{"SET k w IFEQ v", "$-1\r\n"}, {`SET k w IFEQ ""`, "$-1\r\n"}, {"SET k w IFEQ v GET", "$-1\r\n"}, {"EXISTS k", ":0\r\n"},
	{"SET k v", ok}, {"SET k w IFEQ other", "$-1\r\n"}, {"SET k w IFEQ V", "$-1\r\n"}, {"SET k w GET IFEQ other", bulk("v")}, {"GET k", bulk("v")},
	{"SET k v IFEQ v PX 3600000", ok}, {"TTL k", ":3600\r\n"}, {"set k w keepttl ifeq v", ok}, {"TTL k", ":3600\r\n"}, {"SET k v GET IFEQ w", bulk("w")}, {"GET k", bulk("v")}, {"TTL k", ":-1\r\n"},
	{"SET k w IFEQ", failed("ERR syntax error")}, {"SET k w IFEQ v NX", failed("ERR syntax error")}, {"SET k w XX IFEQ v", failed("ERR syntax error")}, {"SET k w NX IFEQ v", failed("ERR syntax error")},
	{"SET k w IFEQ v XX", failed("ERR syntax error")}, {"SET k w IFEQ v EX 0", failed("ERR invalid expire time in 'set' command")}, {"GET k", bulk("v")},
	{"DELEX k IFEQ other", ":0\r\n"}, {"DELIFEQ k other", ":0\r\n"}, {"GET k", bulk("v")}, {"delex k ifeq v", ":1\r\n"}, {"DELEX k IFEQ v", ":0\r\n"}, {"DELEX k nonsense v", ":0\r\n"}, {"DELIFEQ k v", ":0\r\n"},
	{"SET k v", ok}, {"DELIFEQ k v", ":1\r\n"}, {"EXISTS k", ":0\r\n"}, {`SET k ""`, ok}, {`DELEX k IFEQ ""`, ":1\r\n"}, {`DELEX k IFEQ ""`, ":0\r\n"}, {`DELIFEQ k ""`, ":0\r\n"},
	{"SET k 0123", ok}, {"DELEX k IFEQ 123", ":0\r\n"}, {"DELEX k", ":1\r\n"}, {"DELEX k", ":0\r\n"},
	{"SET k v", ok}, {"DELEX k nonsense v", failed("ERR Invalid condition. Use IFEQ, IFNE, IFDEQ, or IFDNE")}, {"DELEX k IFNE x", failed("ERR syntax error")}, {"DELEX k ifdeq x", failed("ERR syntax error")},
	{"DELEX k IFEQ", failed("ERR wrong number of arguments for 'delex' command")}, {"DELEX none IFEQ", failed("ERR wrong number of arguments for 'delex' command")}, {"DELEX k IFEQ v x", failed("ERR wrong number of arguments for 'delex' command")},
	{"DELEX", failed("ERR wrong number of arguments for 'delex' command")}, {"DELIFEQ k", failed("ERR wrong number of arguments for 'delifeq' command")},
	{"HSET h f v", ":1\r\n"}, {"SET h w IFEQ v", failed(string(errWrongType))}, {"DELIFEQ h v", failed(string(errWrongType))}, {"DELEX h IFEQ v", failed("ERR Key should be of string type if conditions are specified")},
	{"DELEX h nonsense v", failed("ERR Key should be of string type if conditions are specified")}, {"HGET h f", bulk("v")}, {"DELEX h", ":1\r\n"},
}

func TestCompareAndSetRepliesAsNewerServers(t *testing.T) {
	for way, do := range map[string]func(p *peer, command string) string{
		"alone":    (*peer).do,
		"in MULTI": func(p *peer, command string) string { return strings.TrimPrefix(p.transaction(command), "*1\r\n") },
		"in a script": func(p *peer, command string) string {
			return p.do(`EVAL "return redis.pcall(unpack(ARGV))" 0 ` + command)
		},
	} {
		p := newEngineSite(t).dial()
		for _, tt := range compareAndSet {
			want := tt.reply
			if strings.Contains(want, "wrong number of arguments") && way != "alone" {
				continue // another check has other words
			}
			if got := do(p, tt.command); got != want {
				t.Errorf("%s, %s: the reply is %q, want %q", way, tt.command, got, want)
			}
		}
	}
}

// A key of MSET that must not be written leaves the keys before it as they are.
func TestMSETChangesNothingIfOneKeyIsRefused(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("SET a w1", ok)
	for _, command := range []string{"MSET", "MSETNX"} {
		p.expect(command+" b w2 simba:{a}:contender w2", failed("ERR '"+strings.ToLower(command)+"' cannot make a lock of 'simba:{a}:contender': it is the queue of a mutex"))
		p.expect("MGET a b", "*2\r\n"+bulk("w1")+"$-1\r\n")
	}
	p.expect("DELEX simba:{a}:fence", failed("ERR 'delex' cannot change 'simba:{a}:fence': it counts the fencing tokens of a mutex, and only INCR does so"))
	p.expect("MSET a w1 simba:{a}:token "+strings.TrimPrefix(p.token("a"), ":"), ok)
}

func TestUsersAreLimitedInCompareAndSetAndMSET(t *testing.T) {
	s := newUsersSite(t, newUsersFile(t, append(team, "user drop on >pw %W~* +@all")...))
	worker := s.as("worker") // has the rule as:w-*
	p := s.dial()
	p.expect("SET m w-1", ok)
	for _, command := range []string{"MSET a w-1 b other", "MSETNX a other b w-1", "SET m other IFEQ w-1", "MSET simba:{m}:token w-1 b other"} {
		worker.expect(command, noContender)
	}
	worker.expect("MSET a w-1 b w-2", ok)
	worker.expect("SET m w-2 IFEQ w-1", ok)
	billing := s.as("billing")
	for _, command := range []string{"MSET billing:1 x other x", "MSETNX billing:1 x shared:1 x", "GETRANGE other 0 1", "DELEX other IFEQ x", "DELIFEQ shared:1 x", "DELEX shared:1"} {
		billing.expect(command, noKey)
	}
	drop := s.as("drop") // may not read
	for _, command := range []string{"SET m x IFEQ x", "DELEX m IFEQ x", "DELIFEQ m x"} {
		drop.expect(command, noKey)
	}
	drop.expect("SET m x", ok)
	drop.expect("DELEX m", ":1\r\n")
}
