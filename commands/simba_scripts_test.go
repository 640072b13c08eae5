package commands

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/need"
)

// Contenders of Simba on the JVM run scripts on keys. These tests send the same commands.

func evalOf(s seeds.Script, mutex, contender string, more ...string) string {
	keys := s.Keys(mutex)
	words := []string{"EVAL", strconv.Quote(s.Source), strconv.Itoa(len(keys))}
	for _, k := range keys {
		words = append(words, strconv.Quote(k))
	}
	return strings.Join(append(append(words, contender), more...), " ")
}

func generation(t *testing.T, name string) seeds.Generation {
	t.Helper()
	for _, g := range seeds.Generations {
		if g.Name == name {
			return g
		}
	}
	t.Fatalf("seeds has no generation %s", name)
	return seeds.Generation{}
}

var anyNames = []string{"job", "a b", "{a", "a}b", "a}:b", "{}", "größe\x00\xff", "simba:{x}", strings.Repeat("long", 100)}

func TestScriptsOfEverySimbaReplyAsOnRedisForEveryMutexName(t *testing.T) {
	for _, g := range seeds.Generations {
		for _, m := range anyNames {
			t.Run(fmt.Sprintf("%s %.20q", g.Name, m), func(t *testing.T) {
				persist := "PERSIST " + strconv.Quote(seeds.Lease(m)) // scripts then get PTTL -1
				there := "EXISTS " + strconv.Quote(seeds.Lease(m))
				if g.Tokens { // for the other generations, only this server has a token
					there += " " + strconv.Quote(seeds.Token(m))
				}
				expectSameAsRedis(t, []string{
					evalOf(g.Guard, m, "a", "60000"), evalOf(g.Acquire, m, "a", "60000"), evalOf(g.Guard, m, "a", "90000"),
					persist, evalOf(g.Acquire, m, "b", "60000"), evalOf(g.Guard, m, "b", "60000"), evalOf(g.Release, m, "b"),
					there,
					evalOf(g.Release, m, "a"), evalOf(g.Release, m, "a"),
					there,
					evalOf(g.Acquire, m, "b", "60000"), persist, evalOf(g.Acquire, m, "a", "60000"),
					"GET " + strconv.Quote(seeds.Lease(m)), evalOf(g.Release, m, "b"),
				})
			})
		}
	}
}

// tokenOf returns the token in the reply of a script of Simba 3.3 or later.
func tokenOf(t *testing.T, reply string) uint64 {
	t.Helper()
	lines := strings.Split(reply, "\r\n")
	n, err := strconv.ParseUint(strings.TrimPrefix(lines[max(0, len(lines)-2)], ":"), 10, 64)
	if err != nil || !strings.HasPrefix(reply, "*3\r\n") {
		t.Fatalf("the script replied %q, want an array with a token", reply)
	}
	return n
}

func (p *peer) owned(mutex string) uint64 {
	p.t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(p.token(mutex), ":"), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func TestScriptsAndSimbaCommandsSeeTheSameToken(t *testing.T) {
	p := newEngineSite(t).dial()
	last := uint64(0)
	grew := func(n uint64) {
		t.Helper()
		if n <= last {
			t.Errorf("token %d follows token %d, want a larger one", n, last)
		}
		last = n
	}
	for _, name := range []string{"3.3", "4.0", "3.3"} {
		g := generation(t, name)
		n := tokenOf(t, p.do(evalOf(g.Acquire, "m", "jvm", "60000")))
		grew(n)
		if owner := p.owned("m"); owner != n {
			t.Errorf("the script got the token %d, but SIMBA.OWNER shows %d", n, owner)
		}
		p.expect(fmt.Sprint("SIMBA.CHECK m ", n), ":1\r\n")
		p.expect("GET simba:{m}:token", bulk(strconv.FormatUint(n, 10)))
		p.expect("GET simba:{m}:fence", bulk(strconv.FormatUint(n, 10)))
		if again := tokenOf(t, p.do(evalOf(g.Guard, "m", "jvm", "60000"))); again != n {
			t.Errorf("after a renewal the token is %d, want the same as before, %d", again, n)
		}
		p.expect(evalOf(g.Release, "m", "jvm"), ":1\r\n")
		p.expect("GET simba:{m}:token", "$-1\r\n")

		p.do("SIMBA.ACQUIRE m ours 60000")
		grew(p.owned("m"))
		if seen := tokenOf(t, p.do(evalOf(g.Acquire, "m", "jvm", "60000"))); seen != last {
			t.Errorf("a script sees the token %d, want %d", seen, last)
		}
		p.do("SIMBA.ACQUIRE other x 60000") // all mutexes share one counter of tokens
		p.do("SIMBA.RELEASE other x")
		p.expect("SIMBA.RELEASE m ours", ":1\r\n")

		p.expect("SET m plain NX PX 60000", ok) // as lock libraries do
		grew(p.owned("m"))
		p.expect("GET simba:{m}:token", bulk(strconv.FormatUint(last, 10)))
		p.expect("DEL m", ":1\r\n")

		p.do(evalOf(generation(t, "3.1").Acquire, "m", "old", "60000")) // 3.1 gets a token too
		grew(p.owned("m"))
		p.expect(evalOf(generation(t, "3.1").Release, "m", "old"), ":1\r\n")

		for _, c := range []string{"MULTI", "SET m multi NX PX 60000", "INCR simba:{m}:fence", "GET simba:{m}:token"} {
			p.do(c)
		}
		reply := p.do("EXEC")
		grew(p.owned("m"))
		if want := fmt.Sprintf("*3\r\n%s:%d\r\n%s", ok, last, bulk(strconv.FormatUint(last, 10))); reply != want {
			t.Errorf("EXEC replied %q, want %q", reply, want)
		}
		p.expect("DEL m", ":1\r\n")
		grew(tokenOf(t, "*3\r\n\r\n"+p.do("INCR simba:{m}:fence"))) // no lock exists now
	}
}

// expectNotices subscribes to channels. It returns a function whose arguments are payloads. The
// function fails unless exactly these payloads have arrived since its last call.
func (s *site) expectNotices(channels ...string) func(want ...string) {
	s.t.Helper()
	sub := s.dial()
	sub.send("SUBSCRIBE " + strings.Join(channels, " "))
	for range channels {
		sub.reply()
	}
	return func(want ...string) {
		s.t.Helper()
		for _, payload := range want {
			sub.nc.SetReadDeadline(time.Now().Add(need.Hang))
			if got, err := readFrame(sub.r); err != nil || !strings.HasSuffix(got, bulk(payload)) {
				s.t.Fatalf("the subscriber received %q and the error %v, want %q", got, err, payload)
			}
		}
		if got := sub.do("PING"); !strings.Contains(got, "pong") {
			s.t.Errorf("the subscriber also received %q, want no further notice", got)
		}
	}
}

func TestNoticesOfScriptsArePublishedOnce(t *testing.T) {
	for _, g := range seeds.Generations {
		s := newEngineSite(t)
		p := s.dial()
		expectNotices := s.expectNotices("simba:{m}")
		p.do(evalOf(g.Acquire, "m", "a", "60000"))
		expectNotices("acquired@@a")
		p.do(evalOf(g.Guard, "m", "a", "60000"))
		p.do(evalOf(g.Release, "m", "a"))
		expectNotices("released@@a")
	}
}

func TestAHandoffByAScriptPublishesOnlyTheNextTenure(t *testing.T) {
	for _, g := range seeds.Generations {
		s := newEngineSite(t)
		p, waiter := s.dial(), s.dial()
		expectNotices := s.expectNotices("simba:{m}")
		p.do(evalOf(g.Acquire, "m", "a", "60000"))
		waiter.send("SIMBA.ACQUIRE m b 60000 WAIT 0")
		for p.do("ZCARD simba:{m}:contender") != ":1\r\n" {
		}
		p.do(evalOf(g.Release, "m", "a"))
		if reply := waiter.reply(); !strings.Contains(reply, "acquired") {
			t.Errorf("%s: the waiter got %q, want acquired", g.Name, reply)
		}
		expectNotices("acquired@@a", "acquired@@b")
	}
}

func TestAScriptDoesNotAnnounceAReservedMutexAsFree(t *testing.T) {
	for _, g := range seeds.Generations {
		s := newEngineSite(t)
		p := s.dial()
		expectNotices, direct := s.expectNotices("simba:{m}"), s.expectNotices("simba:{m}:b")
		p.do(evalOf(g.Acquire, "m", "a", "60000"))
		p.do("SIMBA.ACQUIRE m b 60000")
		p.do(evalOf(g.Release, "m", "a"))
		direct("released@@a")
		if reply := p.do(evalOf(g.Acquire, "m", "c", "60000")); !strings.Contains(reply, "b") {
			t.Errorf("%s: during the reservation for b, c got %q, want b in the reply", g.Name, reply)
		}
		p.do("SIMBA.RELEASE m b") // b leaves the queue
		expectNotices("acquired@@a", "released@@a")
		p.do(evalOf(g.Acquire, "m", "c", "60000"))
		expectNotices("acquired@@c")
	}
}

func TestWaitersStayInOrderWhenAScriptDeletesTheQueue(t *testing.T) {
	for _, name := range []string{"3.2", "3.3"} {
		g := generation(t, name)
		s := newEngineSite(t)
		p := s.dial()
		p.do(evalOf(g.Acquire, "m", "jvm", "60000"))
		var waiters []*peer
		for i := range 5 {
			w := s.dial()
			w.send(fmt.Sprintf("SIMBA.ACQUIRE m w%d 60000 WAIT 0", 9-i))
			for p.do("ZCARD simba:{m}:contender") != fmt.Sprintf(":%d\r\n", i+1) {
			}
			waiters = append(waiters, w)
		}
		// This script queues the contender by ZADD.
		old := evalOf(generation(t, "3.1").Acquire, "m", "old", "60000")
		p.do(old)
		p.do(evalOf(g.Release, "m", "jvm"))
		for i, w := range waiters {
			if reply := w.reply(); !strings.Contains(reply, "acquired") {
				t.Fatalf("%s: waiter %d got %q, want acquired", name, i, reply)
			}
			p.expectOwner("m", fmt.Sprintf("w%d", 9-i))
			p.do(evalOf(g.Release, "m", fmt.Sprintf("w%d", 9-i)))
		}
		p.expect("ZRANGE simba:{m}:contender 0 -1", bulks("old"))
		p.expect(strings.Replace(old, "60000", "50000", 1), bulk("old@@50000"))
		p.expect("EXISTS simba:{m}:contender", ":0\r\n")
	}
}

// Contenders of Simba before 3.0.2 subscribe to channels without braces.
func TestAContenderThatSubscribesWithoutBracesIsNotified(t *testing.T) {
	deaf := generation(t, "2.9")
	for _, m := range []string{"m", "a:b", "a b"} {
		plain := "simba:" + m + ":0:1@host"
		for name, release := range map[string]func(p *peer){
			"SIMBA.RELEASE":    func(p *peer) { p.do("SIMBA.RELEASE " + m + " a") },
			"DEL":              func(p *peer) { p.do("DEL " + strconv.Quote(m)) },
			"a release of 2.9": func(p *peer) { p.do(evalOf(deaf.Release, m, "a")) },
			"a release of 3.3": func(p *peer) {
				p.do(evalOf(generation(t, "3.3").Release, m, "a"))
			},
		} {
			if m == "a b" && name == "SIMBA.RELEASE" {
				continue
			}
			t.Run(name+" "+m, func(t *testing.T) {
				s := engineSite(t, true)
				p := s.dial()
				direct := s.expectNotices(strconv.Quote(plain))
				p.expect("SET "+strconv.Quote(m)+" a PX 60000", ok)
				p.do(evalOf(deaf.Acquire, m, "0:1@host", "60000"))
				release(p)
				direct("released@@a")
				// The mutex is reserved.
				p.expect("SET "+strconv.Quote(m)+" b NX PX 60000", "$-1\r\n")
				p.expect(evalOf(deaf.Acquire, m, "0:1@host", "60000"), bulk("0:1@host@@60000"))
			})
		}
	}
}

func TestAContenderThatSubscribesLateWithoutBracesIsNotified(t *testing.T) {
	s := engineSite(t, true)
	p := s.dial()
	p.do("SET a:b x PX 60000")
	p.do(evalOf(generation(t, "2.9").Acquire, "a:b", "0:1@host", "60000"))
	p.do("DEL a:b")
	s.expectNotices("simba:a:b:0:1@host")("released@@x")
}

func TestATokenIsReadLikeAString(t *testing.T) {
	p := newEngineSite(t).dial()
	const token, fence = "simba:{m}:token", "simba:{m}:fence"
	for _, key := range []string{token, fence} {
		p.expect("GET "+key, "$-1\r\n")
		p.expect("EXISTS "+key, ":0\r\n")
		p.expect("TYPE "+key, "+none\r\n")
		p.expect("PTTL "+key, ":-2\r\n")
		p.expect("DEL "+key, ":0\r\n")
		p.expect("PEXPIRE "+key+" 1000", ":0\r\n")
		p.expect("SET "+key+" 1 XX", "$-1\r\n")
	}
	p.expect("SET m a", ok)
	for _, key := range []string{token, fence} {
		p.expect("GET "+key, bulk("1"))
		p.expect("MGET m "+key, bulks("a", "1"))
		p.expect("STRLEN "+key, ":1\r\n")
		p.expect("EXISTS "+key+" "+key, ":2\r\n")
		p.expect("TYPE "+key, "+string\r\n")
		p.expect("TTL "+key, ":-1\r\n")
		p.expect("HGET "+key+" f", failed(string(errWrongType)))
		p.expect("ZCARD "+key, failed(string(errWrongType)))
	}
	p.expect("PEXPIREAT m 4000000000000", ":1\r\n")
	p.expect("PEXPIRETIME "+token, ":4000000000000\r\n")
	p.expect("TTL "+fence, ":-1\r\n")
	p.expect("KEYS *", bulks("m"))
	p.expect("KEYS simba:{*", bulks("simba:{m}"))
	p.expect("DBSIZE", ":1\r\n")
}

func TestATokenCanOnlyBeSetToItsValue(t *testing.T) {
	p := newEngineSite(t).dial()
	const token, fence = "simba:{m}:token", "simba:{m}:fence"
	refused := func(command string) {
		t.Helper()
		if reply := p.do(command); !strings.HasPrefix(reply, "-ERR '") || !strings.Contains(reply, "'simba:{m}:") {
			t.Errorf("%s replied %q, want an error that names the key", command, reply)
		}
	}
	refused("SET " + token + " 1")
	p.expect("SET m a PXAT 4000000000000", ok)
	for _, command := range []string{
		"SET " + token + " 1", "SET " + token + " 1 PX 5", "SET " + token + " 1 XX KEEPTTL", "PSETEX " + token + " 100 1",
	} {
		p.expect(command, ok)
	}
	for _, command := range []string{"PEXPIRE " + token + " 5", "EXPIRE " + token + " 60", "PEXPIREAT " + token + " 4000000000001"} {
		p.expect(command, ":1\r\n")
	}
	p.expect("SET "+token+" 2 NX", "$-1\r\n")
	for _, command := range []string{
		"SET " + token + " 2", "SET " + token + " 01", "GETSET " + token + " 2", "INCR " + token, "DECR " + token, "PERSIST " + token,
		"DEL " + token, "UNLINK " + token, "PEXPIRE " + token + " 0", `EVAL "return redis.call('del', KEYS[1])" 1 ` + token,
		"SET " + fence + " 1", "SET " + fence + " 9", "INCRBY " + fence + " 2", "DECR " + fence, "DECRBY " + fence + " 1", "DEL " + fence, "DEL m " + fence, "UNLINK " + fence,
		"EXPIRE " + fence + " 5", "PEXPIRE " + fence + " 0",
	} {
		refused(command)
	}
	for _, command := range []string{"HSET simba:{free}:token f v", "HINCRBY simba:{free}:token f 1"} {
		if reply := p.do(command); !strings.Contains(reply, "'simba:{free}:token'") {
			t.Errorf("%s replied %q, want an error that names the key", command, reply)
		}
	}
	p.expect("GET m", bulk("a"))
	p.expect("GET "+token, bulk("1"))
	p.expect("PEXPIRETIME "+token, ":4000000000000\r\n")
	p.expect("PEXPIRETIME m", ":4000000000000\r\n")
	for _, del := range []string{"DEL m " + token, "UNLINK " + token + " m"} {
		p.expect(del, ":2\r\n")
		p.expect("EXISTS m "+token, ":0\r\n")
		p.expect("SET m b", ok)
	}
	for _, c := range []string{"MULTI", "DEL " + token, "DEL m", "EXISTS " + token, "EXEC"} {
		if reply := p.do(c); c == "EXEC" && reply != "*3\r\n:1\r\n:1\r\n:0\r\n" {
			t.Errorf("EXEC replied %q, want the three changes", reply)
		}
	}
}

func TestAWatchedTokenChangesWithTheNextTenure(t *testing.T) {
	for _, key := range []string{"simba:{m}:token", "simba:{m}:fence"} {
		s := newEngineSite(t)
		p, other := s.dial(), s.dial()
		p.do("SET m a")
		for _, c := range []string{"WATCH " + key, "MULTI", "GET m"} {
			p.do(c)
		}
		other.do("SET m b")
		p.expect("EXEC", "*-1\r\n")
	}
}

func TestAUserMayWriteItsToken(t *testing.T) {
	g := generation(t, "3.3")
	s := newUsersSite(t, newUsersFile(t, team...))
	p := s.as("worker") // this user has the rule as:w-*
	if n := tokenOf(t, p.do(evalOf(g.Acquire, "m", "w-1", "60000"))); n == 0 {
		t.Error("the script got no token")
	}
	if reply := p.do(evalOf(g.Acquire, "n", "other", "60000")); !strings.HasPrefix(reply, "-") {
		t.Errorf("a script for a contender that the user must not name replied %q, want an error", reply)
	}
	// The keys of a mutex's token and of its counter need a rule for the mutex.
	p = s.as("billing")
	for _, command := range []string{"GET simba:{other}:token", "INCR simba:{other}:fence", `GET "simba:{a b}:fence"`} {
		p.expect(command, noKey)
	}
}

func TestAUserMaySubscribeToItsMutexesOfAnyName(t *testing.T) {
	s := newUsersSite(t, newUsersFile(t, "user jvm on >pw ~job* +@all", "user deaf on >pw ~job* &simba:job:* +@all"))
	for channel, may := range map[string]bool{
		"simba:{job one}": true, "simba-events:{job one}": true, "simba:{job one}:jvm:1": true, "simba:{job{2}}:jvm": true,
		"simba:{my job}": false, "simba:{job one}:boss": false,
		"simba:{job}:x}:jvm": false, // ambiguous: the contender x}:jvm of job, or jvm of job}:x
		"simba:job:jvm:1":    false, // ambiguous: the contender 1 of job:jvm, or jvm:1 of job
	} {
		reply := s.as("jvm").do("SUBSCRIBE " + strconv.Quote(channel))
		if got := strings.HasPrefix(reply, "*3"); got != may {
			t.Errorf("SUBSCRIBE %s replied %q, want allowed=%v", channel, reply, may)
		}
	}
	if reply := s.as("deaf").do("SUBSCRIBE simba:job:jvm:1"); !strings.HasPrefix(reply, "*3") {
		t.Errorf("with a rule for channels SUBSCRIBE replied %q, want no error", reply)
	}
}
