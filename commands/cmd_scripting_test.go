package commands

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

// call returns an EVAL whose script calls a command and returns its reply.
func evalCall(words string) string {
	return `EVAL "return redis.call('` + strings.ReplaceAll(words, " ", "','") + `')" 0`
}

func pcall(words string) string {
	return strings.Replace(evalCall(words), "redis.call", "redis.pcall", 1)
}

const missingSHA = "ffffffffffffffffffffffffffffffffffffffff"

// This server and Redis reply to these commands with the same bytes.
var sameScripting = []string{
	"EVAL", `EVAL "return 1"`, `EVAL "return 1" x`, `EVAL "return 1" -1`, `EVAL "return 1" 1`, `EVAL "return 1" 99999999999999999999`, `EVAL "" 0`,
	`EVAL "return {KEYS[1],KEYS[2],ARGV[1],ARGV[2]}" 2 a b c d`, `EVAL "return #KEYS" 0 a b`, `EVAL "return #ARGV" 0 a b`,
	`EVAL "return {1,2,{3,'four',{true,false}}}" 0`, `EVAL "return nil" 0`, `EVAL "return {err='ERR bad'}" 0`, `EVAL "return {ok='fine'}" 0`, `EVAL "error('bad')" 0`, `EVAL "return {redis.call('get','none') == false}" 0`,
	"EVALSHA abc 0", "EVALSHA abc -1", "EVALSHA " + missingSHA + " 0", "EVALSHA " + missingSHA + " x",
	evalCall("nonsense"), evalCall("nonsense a b"), evalCall("get"), evalCall("incr a b"), evalCall("eval x 0"), evalCall("script load x"), evalCall("script"), evalCall("multi"), evalCall("watch a"), evalCall("unwatch"),
	evalCall("client nonsense"), evalCall("client id"), evalCall("client"), evalCall("config get x"), evalCall("subscribe a"),
	pcall("nonsense"), pcall("get"), pcall("multi"), pcall("client nonsense"),
	evalCall("set s word"), evalCall("set s word nx"), evalCall("get s"), evalCall("get none"), evalCall("incr s"), pcall("incr s"), evalCall("hset s f v"), evalCall("set s x px 0"), evalCall("SeT s word"),
	evalCall("select 0"), evalCall("select 20"), evalCall("select x"), evalCall("echo hello"), evalCall("ping"), evalCall("ping x"), evalCall("ping x y"), evalCall("publish a b"),
	evalCall("hset h f v g w"), evalCall("hgetall h"), evalCall("hget h g"), evalCall("del h"), evalCall("incr n"), evalCall("incrby n 41"), evalCall("get n"), evalCall("mget n none s"),
	"SCRIPT", "SCRIPT nonsense", "SCRIPT LOAD", `SCRIPT LOAD "return 1" a`, `SCRIPT LOAD "return 1"`, "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0",
	"EVALSHA E0E1F9FABFC9D4800C877A703B823AC0578FF8DB 0",
	"SCRIPT EXISTS", "SCRIPT EXISTS e0e1f9fabfc9d4800c877a703b823ac0578ff8db E0E1F9FABFC9D4800C877A703B823AC0578FF8DB x " + missingSHA,
	"SCRIPT FLUSH x", "SCRIPT FLUSH SYNC x", "SCRIPT FLUSH SYNC", "EVALSHA e0e1f9fabfc9d4800c877a703b823ac0578ff8db 0", "SCRIPT FLUSH ASYNC", "SCRIPT FLUSH", "SCRIPT FLUSH async",
	"SCRIPT KILL", "SCRIPT KILL x",
	"MULTI", `EVAL "return redis.call('get','s')" 0`, "SET s other", `EVAL "return redis.call('get','s')" 0`, `EVAL "nonsense(" 0`, "EVALSHA " + missingSHA + " 0", "SCRIPT EXISTS x", "GET s", "EXEC",
	"MULTI", "EVAL x", "EXEC", "WATCH", "WATCH a b", "MULTI", "WATCH c", "GET none", "EXEC", "WATCH s", "SET s word", "MULTI", "GET s", "EXEC", "MULTI", "GET s", "UNWATCH", "TIME x", "EXEC",
	"WATCH s", "SET s x", "UNWATCH", "MULTI", "EXEC", "WATCH s", "SET s x", "MULTI", "DISCARD", "MULTI", "GET s", "EXEC",
	"CONFIG GET busy-reply-threshold", "CONFIG SET lua-time-limit x", "CONFIG SET lua-time-limit -1", "CONFIG SET lua-time-limit 200 busy-reply-threshold 300", "CONFIG GET *-time-limit",
}

func TestScriptsAndWatchesReplyAsRedis(t *testing.T) {
	inBothProtocols(t, realRedis(t), func() *site { return newEngineSite(t) }, func(_ *site, _ string, ours, theirs *peer) {
		theirs.do("SCRIPT FLUSH")
		theirs.do("CONFIG SET busy-reply-threshold 5000")
		expectSame(ours, theirs, sameScripting, func(_, _, want string) bool {
			return strings.Contains(want, "Error compiling script") // the texts of compilers differ
		})
	})
}

// abort at the end of a script makes the script fail.
const abort = ` error('no more')`

func TestAScriptThatFailsChangesNothing(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect("SET a w1", ok)
	for _, rest := range []string{abort, ` redis.call('incr','a')`, ` redis.call('nonsense')`, ` nonsense()`} {
		reply := p.do(`EVAL "redis.call('set','a','w2') redis.call('set','b','w2')` + rest + `" 0`)
		if !strings.HasPrefix(reply, "-") {
			t.Errorf("a script that ends with%s replied %q, want an error", rest, reply)
		}
		p.expect("MGET a b", "*2\r\n"+bulk("w1")+"$-1\r\n")
	}
	// An error that the script handles or returns is no failure.
	p.expect(`EVAL "redis.call('set','b','w2') redis.pcall('incr','b') return 1" 0`, ":1\r\n")
	p.expect(`EVAL "redis.call('set','a','w2') return redis.error_reply('ERR so')" 0`, failed("ERR so"))
	p.expect("MGET a b", bulks("w2", "w2"))
}

func TestAFailedScriptInATransactionChangesNothing(t *testing.T) {
	const fails = `EVAL "redis.call('set','a','script') redis.call('zadd','simba:{a}:contender',0,'w9') redis.call('publish','ch','x')` + abort + `" 0`
	s := newEngineSite(t)
	for _, watch := range []string{"UNWATCH", "WATCH a simba:{a}:contender"} {
		p := s.dial()
		p.expect("DEL a b c", p.do("EXISTS a b c"))
		p.expect(watch, ok)
		reply := p.transaction("SET a w1", "INCR c", fails, "GET a", "INCR c", fails, "SET b w2", "ZCARD simba:{a}:contender", "TIME")
		parts := strings.SplitAfterN(reply, "-ERR", 3)
		if len(parts) != 3 || parts[0] != "*9\r\n"+ok+":1\r\n-ERR" || !strings.Contains(parts[1], bulk("w1")+":2\r\n") || !strings.Contains(parts[2], "\r\n"+ok+":0\r\n*2\r\n") {
			t.Errorf("after %s EXEC replied %q, want the errors of two scripts and seven other replies", watch, reply)
		}
		p.expect("MGET a b c", bulks("w1", "w2", "2"))
	}
}

func TestTooManyFailedScriptsUndoTheTransaction(t *testing.T) {
	p := newEngineSite(t).dial()
	commands := []string{"SET a w1"}
	for range maxTorn + 1 {
		commands = append(commands, `EVAL "redis.call('set','b','script')`+abort+`" 0`)
	}
	p.expectTransaction(failed(string(errTorn)), commands...)
	p.expect("EXISTS a b", ":0\r\n")
}

// Redisson renews a read lock by such a script. Its for loop begins at a string, which Lua must
// convert to a number.
func TestAScriptMayRenewAReadLockForEachHold(t *testing.T) {
	p := newEngineSite(t).dial()
	renew := strings.Join([]string{
		`if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return 0 end`,
		`redis.call('pexpire', KEYS[1], ARGV[1])`,
		`for hold = redis.call('hget', KEYS[1], ARGV[2]), 1, -1 do redis.call('pexpire', KEYS[2] .. ':' .. hold, ARGV[1]) end`,
		`return 1`,
	}, " ")
	p.expect("HSET read client 2", ":1\r\n")
	for _, key := range []string{"read", "t:1", "t:2"} {
		if key != "read" {
			p.expect("SET "+key+" 1", ok)
		}
		p.expect("PEXPIRE "+key+" 60000", ":1\r\n")
	}
	p.expect(`EVAL "`+renew+`" 2 read t 600000 client`, ":1\r\n")
	for _, key := range []string{"read", "t:1", "t:2"} {
		if left, _ := strconv.Atoi(strings.Trim(p.do("PTTL "+key), ":\r\n")); left < 500_000 {
			t.Errorf("%s has %d ms left, want a renewed expiry", key, left)
		}
	}
	p.expect(`EVAL "`+renew+`" 2 read t 600000 other`, ":0\r\n")
}

func TestTimeIsConstantInAScript(t *testing.T) {
	p := newEngineSite(t).dial()
	p.expect(`EVAL "local a = redis.call('time') for i = 1, 100000 do end local b = redis.call('time') return a[1] == b[1] and a[2] == b[2]" 0`, ":1\r\n")
}

func TestAMessageOfAScriptReachesSubscribers(t *testing.T) {
	s := newEngineSite(t)
	p, q := s.dial(), s.dial()
	q.expect("SUBSCRIBE ch", subscribed("subscribe", "ch", 1))
	q.expect("PSUBSCRIBE c*", subscribed("psubscribe", "c*", 2))
	p.expect(evalCall("publish ch hello"), ":2\r\n")
	got := q.reply() + q.reply()
	if !strings.Contains(got, bulks("message", "ch", "hello")) || !strings.Contains(got, bulks("pmessage", "c*", "ch", "hello")) {
		t.Errorf("the subscriber got %q, want hello twice", got)
	}
	p.expectTransaction("*1\r\n:2\r\n", "PUBLISH ch again")
	q.reply()
	q.reply()
	p.do(`EVAL "redis.call('publish','ch','never')` + abort + `" 0`)
	p.expect("PUBLISH ch last", ":2\r\n")
	if got := q.reply() + q.reply(); !strings.Contains(got, "last") || strings.Contains(got, "never") {
		t.Errorf("the subscriber got %q, want last and not never", got)
	}
}

func TestAnEndlessScriptCanBeKilledAndBlocksNobody(t *testing.T) {
	s := newEngineSite(t)
	p, q := s.dial(), s.dial()
	q.expect("CONFIG SET busy-reply-threshold 10", ok)
	p.send(`EVAL "redis.call('set','a','w1') while true do end" 0`)
	q.expect("SET b w2", ok)
	deadline := time.Now().Add(need.Hang)
	for q.do("SCRIPT KILL") != ok {
		if time.Now().After(deadline) {
			t.Fatal("the script cannot be killed")
		}
	}
	if reply := p.reply(); !strings.HasPrefix(reply, "-ERR Script killed by user with SCRIPT KILL") {
		t.Errorf("EVAL replied %q, want the error of a killed script", reply)
	}
	q.expect("MGET a b", "*2\r\n$-1\r\n"+bulk("w2"))
}

func TestAKilledScriptInEXECDoesNotRunAgainAfterAConflict(t *testing.T) {
	s := newEngineSite(t)
	p, q := s.dial(), s.dial()
	q.expect("CONFIG SET busy-reply-threshold 10", ok)
	p.expect("MULTI", ok)
	p.expect(`EVAL "redis.call('get','a') redis.call('get','b') while true do end" 0`, "+QUEUED\r\n")
	p.send("EXEC")
	deadline := time.Now().Add(need.Hang)
	for killed := false; !killed; killed = q.do("SCRIPT KILL") == ok {
		for i := range 100 { // the script has probably read the key a before the last SET
			q.expect("SET a "+strconv.Itoa(i), ok)
		}
		if time.Now().After(deadline) {
			t.Fatal("the script cannot be killed")
		}
	}
	// If the last SET came after the script had read the key a, the transaction conflicts.
	// Otherwise EXEC replies with the error of the script.
	if reply := p.reply(); reply != "-"+string(errContended)+"\r\n" && !strings.HasPrefix(reply, "*1\r\n-ERR Script killed") {
		t.Errorf("EXEC replied %q, want TRYAGAIN or the error of a killed script", reply)
	}
	if reply := q.do("SCRIPT KILL"); !strings.HasPrefix(reply, "-NOTBUSY") {
		t.Errorf("SCRIPT KILL replied %q, want NOTBUSY: the script runs again", reply)
	}
}

// The server counts errors by code in a map. Scripts must not add codes without limit.
func TestErrorCodesOfScriptsAreBounded(t *testing.T) {
	p := newEngineSite(t).dial()
	const scripts = 300
	p.do("nonsense")
	p.do(`EVAL "error({err=string.rep('X',65) .. ' x'})" 0`)
	for i := range scripts {
		p.do(`EVAL "error({err='CODE' .. ARGV[1] .. ' x'})" 0 ` + strconv.Itoa(i))
	}
	p.do("incr")
	p.do(`EVAL "error({err='CODE1 x'})" 0`) // a known code
	p.do("SET k v")
	p.do("HGET k f") // a new code of the server
	info := infoFields(t, p.do("INFO errorstats"))
	for k, want := range map[string]string{
		"errorstat_ERR": "count=2", "errorstat_CODE1": "count=2", "errorstat_CODE299": "", "errorstat_WRONGTYPE": "count=1",
		// The map has room for 126 codes of scripts beside ERR and ERRORSTATS_OVERFLOW, which
		// counts the other codes and the code that is too long.
		"errorstat_ERRORSTATS_OVERFLOW": "count=" + strconv.Itoa(1+scripts-126),
	} {
		if info[k] != want {
			t.Errorf("INFO shows %s:%s, want %s", k, info[k], want)
		}
	}
	if len(info) > maxErrorCodes+2 {
		t.Errorf("INFO shows %d codes, want at most %d", len(info), maxErrorCodes+2)
	}
}
