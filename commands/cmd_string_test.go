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
		"GETSET k w", "TTL k", "GETSET none w", "GET none", "GETDEL none", "GETDEL none", "EXISTS none",
		"GETEX none EX x", "GETEX k EX x", "GETEX k EX 0", "GETEX k EX", "GETEX k NX", "GETEX k KEEPTTL", "GETEX k PERSIST EX 10", "GETEX k EX 1000 PERSIST", "GETEX k", "GETEX k EX 1000", "TTL k", "GETEX k PERSIST", "TTL k", "GETEX k PERSIST", "GETEX k PXAT 4000000000000", "PEXPIRETIME k", "GETEX k EXAT 1", "GET k",
		"SET a 1", "MGET a none a", "STRLEN a", "STRLEN none", `SET "" ""`, `GET ""`, `STRLEN ""`, `SET "\x00\xff\r\n" "\r\n\x00\xfe"`, `GET "\x00\xff\r\n"`, `STRLEN "\x00\xff\r\n"`,
		"HSET h f v", "GET h", "SET h v GET", "SET h v NX GET", "SET h v NX", "SETNX h v", "GETSET h v", "GETDEL h", "GETEX h", "GETEX h EX x", "MGET h a", "STRLEN h", "INCR h", "TYPE h", "SET h v", "TYPE h", "GET h",
		"SET", "SET k", "GET", "GET a b", "SETEX k 1", "MGET", "GETEX", "GETDEL a b",
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

func token(p *peer, mutex string) string {
	_, after, _ := strings.Cut(p.do("SIMBA.OWNER "+mutex), "token\r\n")
	line, _, _ := strings.Cut(after, "\r\n")
	return line
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

func TestSettingTheSameValueKeepsTheTenure(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("SET m w1 PX 3600000", ok)
	first := token(p, "m")
	for _, command := range []string{"SET m w1 PX 7200000", "SET m w1 XX", "SET m w1 KEEPTTL", "SET m w1", "SETEX m 100 w1", "GETSET m w1"} {
		p.do(command)
		if now := token(p, "m"); now != first || now == "" {
			t.Errorf("%s: the token is %q, want the same as before, %q", command, now, first)
		}
	}
}

func TestSettingAnotherValueBeginsATenure(t *testing.T) {
	p := newEngineSite(t).dial()
	p.do("SET m w0")
	for i, command := range []string{"SET m w1 PX 3600000", "SET m w2 XX KEEPTTL", "SETEX m 100 w3", "GETSET m w4", "SET m w5 GET"} {
		before := token(p, "m")
		p.do(command)
		if now := token(p, "m"); now == before || now == "" {
			t.Errorf("%s: the token is %q, want another than before, %q", command, now, before)
		}
		p.expect("GET m", bulk(fmt.Sprint("w", i+1)))
	}
	if got := p.do("SIMBA.HISTORY m"); strings.Count(got, bulk("broken")) != 5 {
		t.Errorf("SIMBA.HISTORY replied %q, want 5 broken tenures", got)
	}
}

func TestTheSameValueInAHashBeginsATenure(t *testing.T) {
	p := newEngineSite(t).dial()
	p.do("HSET m w1 1")
	before := token(p, "m")
	p.expect("SET m w1", ok)
	p.expect("TYPE m", "+string\r\n")
	if now := token(p, "m"); now == before {
		t.Error("SET has kept the tenure of the hash")
	}
}

func TestSetNXRespectsAReservation(t *testing.T) {
	s := newEngineSite(t)
	p, waiter := s.dial(), s.dial()
	p.expect("SET m w1", ok)
	waiter.do("SUBSCRIBE simba:{m}:w2")
	p.do("SIMBA.ACQUIRE m w2 3600000")
	p.expect("DEL m", ":1\r\n")
	for command, reply := range map[string]string{
		"SET m w3 NX": "$-1\r\n", "SETNX m w3": ":0\r\n", "SET m w3 NX PX 1000": "$-1\r\n", "SET m w3 NX PXAT 1": "$-1\r\n", "SET m w3 XX": "$-1\r\n",
	} {
		p.expect(command, reply)
		p.expect("EXISTS m", ":0\r\n")
	}
	p.expect("SET m w2 NX", ok)
}

func TestSetWithoutNXIgnoresAReservation(t *testing.T) {
	s := newEngineSite(t)
	p, waiter := s.dial(), s.dial()
	p.expect("SET m w1", ok)
	waiter.do("SUBSCRIBE simba:{m}:w2")
	p.do("SIMBA.ACQUIRE m w2 3600000")
	p.expect("DEL m", ":1\r\n")
	p.expect("SET m w3", ok)
	p.expect("GET m", bulk("w3"))
}

func TestCountersKeepTenureAndLease(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("SET n 1 PXAT 4000000000000", ok)
	before := token(p, "n")
	p.expect("INCR n", ":2\r\n")
	p.expect("DECRBY n 5", ":-3\r\n")
	if now := token(p, "n"); now != before {
		t.Errorf("the token is %q, want the same as before, %q", now, before)
	}
	p.expect("PEXPIRETIME n", ":4000000000000\r\n")
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
		fmt.Sprintf("EXPIRE k %d", most+1): "expire", "PEXPIREAT k 9223372036854775807": "pexpireat", "GETEX k PXAT 9223372036854775807": "getex",
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
	for _, command := range []string{"GET " + q, "GETSET " + q + " v", "INCR " + q, "GETDEL " + q, "GETEX " + q, "STRLEN " + q, "SET " + q + " v GET"} {
		p.expect(command, failed(wrong))
	}
	p.expect("SET "+q+" v NX", "$-1\r\n")
	p.expect("SETNX "+q+" v", ":0\r\n")
	p.expect("MGET "+q, "*1\r\n$-1\r\n")
	p.expect("ZCARD "+q, ":1\r\n")
}
