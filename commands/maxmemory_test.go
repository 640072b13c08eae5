package commands

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
)

const oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"

type countedMemory struct {
	memoryLimit
	bytes uint64
	log   strings.Builder
}

func newCountedMemory() *countedMemory {
	m := new(countedMemory)
	m.memoryLimit.used = func() uint64 { return m.bytes }
	m.memoryLimit.log = slog.New(slog.NewTextHandler(&m.log, nil))
	return m
}

const mib = 1 << 20

func TestMaxMemoryIsExceededOnlyAboveTheLimit(t *testing.T) {
	m := newCountedMemory()
	for _, step := range []struct {
		limit uint64
		used  uint64
		full  bool
	}{
		{0, 100 * mib, false}, {80 * mib, 80 * mib, false}, {80 * mib, 80*mib + 1, true}, {80 * mib, 80 * mib, false},
		{1, 2, true}, {0, 2, false}, {1, 0, false},
	} {
		m.bytes = step.used
		m.set(step.limit)
		if full := m.exceeded(); full != step.full {
			t.Errorf("with %d bytes used and the limit %d, exceeded returned %t, want %t", step.used, step.limit, full, step.full)
		}
	}
}

// owing is a Keyspace with a negative sum of bytes.
type owing struct{ simba.Keyspace }

func (owing) Bytes() int64 { return -1 }

func TestANegativeCountOfBytesIsZero(t *testing.T) {
	if n := (&store{keyspace: owing{}}).dataset(); n != 0 {
		t.Errorf("dataset returned %d bytes, want 0", n)
	}
}

func TestMaxMemoryIsLoggedOnceEachWay(t *testing.T) {
	m := newCountedMemory()
	m.set(80 * mib)
	for _, used := range []uint64{79, 100, 100, 80, 81, 71, 100, 70, 60, 80} {
		m.bytes = used * mib
		m.exceeded()
	}
	const above = `level=WARN msg="used memory is above maxmemory: refusing commands that take more" used=104857600 maxmemory=83886080`
	const below = `level=INFO msg="used memory is no longer above maxmemory: accepting all commands" used=73400320 maxmemory=83886080`
	if got := m.log.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, above) || !strings.Contains(got, below) {
		t.Errorf("the log is\n%s\nwant one warning and one line about its end", got)
	}
	m.bytes = 100 * mib
	m.exceeded()
	m.set(0)
	m.set(0)
	if got := m.log.String(); strings.Count(got, "\n") != 4 || strings.Count(got, "level=INFO") != 2 {
		t.Errorf("after the limit was removed, the log is\n%s\nwant four lines", got)
	}
}

func TestAReleaseFreesMemoryAtOnce(t *testing.T) {
	s := newEngineSite(t)
	p := s.dial()
	p.do("SIMBA.ACQUIRE a x 60000")
	one := s.x.store.dataset()
	s.x.SetMaxMemory(one + one/2)
	p.do("SIMBA.ACQUIRE b x 60000")
	for range 3 {
		p.expect("SIMBA.ACQUIRE c x 60000", oom)
		p.expect("SIMBA.RELEASE b x", ":1\r\n")
		if got := p.do("SIMBA.ACQUIRE b x 60000"); !strings.Contains(got, "acquired") {
			t.Errorf("after a release SIMBA.ACQUIRE replied %q, want acquired", got)
		}
	}
}

// Above the limit, this server and Redis reply to these commands with the same bytes. The tests
// below have the intended differences.
var sameWhenFull = []string{
	"SET new v", "SET new v NX PX 1000", "SETEX new 10 v", "PSETEX new 1000 v", "SETNX new v", "SETNX k v", "GETSET k v", "INCR n", "INCRBY n 2", "DECR n", "HSET h f v", "HINCRBY h c 1",
	"ZADD simba:{q}:contender 1 b", "SET k other", "SET k", "SETNX k",
	"GET k", "MGET k n", "EXISTS k new", "TTL k", "PEXPIRE k 100000", "EXPIRE n 100", "PERSIST n", "TYPE h", "HGET h f", "HDEL h f", "DEL n", "UNLINK none", "PING", "ECHO x",
	"PUBLISH ch m", "WATCH k", "UNWATCH", "CONFIG GET maxmemory", "CONFIG GET maxmemory-policy", "CLIENT SETNAME x",
	"MULTI", "SET k v2", "EXEC", "MULTI", "GET k", "EXEC", "MULTI", "PING", "DISCARD", "MULTI", "EXEC", "MULTI", "SETNX k v", "PING", "DISCARD",
	`EVAL "return redis.call('set', 'new', 'v')" 0`, `EVAL "return redis.pcall('set', KEYS[1], 'v')" 1 new`, `EVAL "return redis.call('get', KEYS[1])" 1 k`,
	`EVAL "return redis.call('pexpire', KEYS[1], 1000000)" 1 k`, `EVAL "redis.call('incr', 'n')" 0`, `EVAL "return redis.pcall('hset', 'h', 'f', 'v')['err']" 0`,
	"MULTI", "INCR k", "RESET",
}

func TestAFullServerRefusesTheCommandsThatRedisRefuses(t *testing.T) {
	redis := realRedis(t)
	inBothProtocols(t, redis, func() *site { return newEngineSite(t) }, func(s *site, proto string, ours, theirs *peer) {
		expectSame(ours, theirs, []string{"SET k v", "SET n 5", "HSET h f v g w", "MULTI", "INCR n", "GET n"})
		other := redis(t)
		other.expect("CONFIG SET maxmemory 1", ok)
		s.x.SetMaxMemory(1)
		expectSame(ours, theirs, append([]string{"EXEC"}, sameWhenFull...))
		ours.do(proto) // after RESET
		theirs.do(proto)
		expectSame(ours, theirs, []string{"SUBSCRIBE ch", "PING", "UNSUBSCRIBE ch", "DEL k", "GET k"})
		other.expect("CONFIG SET maxmemory 0", ok)
		s.x.SetMaxMemory(0)
		expectSame(ours, theirs, []string{"SET new v"})
	})
}

func TestAFullServerRenewsAndReleasesButGrantsNothingNew(t *testing.T) {
	s := newEngineSite(t)
	p, waiter := s.dial(), s.dial()
	p.do("SIMBA.ACQUIRE m a 60000")
	p.do("SIMBA.ACQUIRE m2 a 60000")
	p.do("SET key a PX 60000")
	waiter.send("SIMBA.ACQUIRE m b 60000 WAIT 0")
	for s.x.store.backend.Stats().Blocked == 0 {
		time.Sleep(time.Millisecond)
	}
	s.x.SetMaxMemory(1)
	for _, command := range []string{
		"SIMBA.ACQUIRE new a 60000", "SIMBA.ACQUIRE new a 60000 NOQUEUE", "SIMBA.ACQUIRE new a 60000 WAIT 0 SESSION", "SIMBA.ACQUIRE m c 60000", "SIMBA.ACQUIRE m c 60000 WAIT 1000",
		"SET key b", "SET key b XX PX 60000", "SETEX key 60 b",
		`EVAL "redis.call('del', 'key') return redis.call('set', 'new', 'v')" 0`,
	} {
		if got := p.do(command); got != oom && !strings.HasPrefix(got, "-OOM command not allowed when used memory > 'maxmemory'. script: ") {
			t.Errorf("%s replied %q, want OOM", command, got)
		}
	}
	for _, renewal := range []string{"SIMBA.ACQUIRE m a 60000", "SIMBA.ACQUIRE m a 60000 WAIT 0", "SIMBA.GUARD m a 60000"} {
		if got := p.do(renewal); !strings.Contains(got, "renewed") {
			t.Errorf("%s replied %q, want renewed", renewal, got)
		}
	}
	if got := p.do("SIMBA.ACQUIRE m c 60000 NOQUEUE"); !strings.Contains(got, "busy") {
		t.Errorf("NOQUEUE on a held mutex replied %q, want busy", got)
	}
	for _, renewal := range []string{"SET key a PX 70000", "SET key a XX PX 70000", "SETEX key 70 a", "PSETEX key 70000 a"} {
		p.expect(renewal, ok)
	}
	p.expect("SET key a NX PX 1000", "$-1\r\n")
	p.expect(`EVAL "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'xx', 'px', 80000) end" 1 key a`, ok)

	// The server queues and runs a transaction that only renews or releases.
	p.expect("MULTI", ok)
	p.expect("SIMBA.GUARD m2 a 60000", "+QUEUED\r\n")
	p.expect("SIMBA.RELEASE m2 a", "+QUEUED\r\n")
	p.expect("PEXPIRE key 90000", "+QUEUED\r\n")
	if got := p.do("EXEC"); !strings.HasPrefix(got, "*3\r\n") || !strings.Contains(got, "renewed") || !strings.HasSuffix(got, ":1\r\n:1\r\n") {
		t.Errorf("EXEC replied %q, want the renewals and the release", got)
	}
	p.expect("MULTI", ok)
	p.expect("SIMBA.ACQUIRE m a 60000", oom)
	p.expect("EXEC", failed("EXECABORT Transaction discarded because of previous errors."))

	p.expect("SIMBA.RELEASE m a", ":1\r\n")
	if got := waiter.reply(); !strings.Contains(got, "acquired") {
		t.Errorf("the earlier waiter got %q, want acquired", got)
	}
	p.expect("DEL key", ":1\r\n")
	if got := p.do("INFO errorstats"); !strings.Contains(got, "errorstat_OOM:count=") {
		t.Errorf("INFO errorstats replied %q, want a count of OOM", got)
	}
	s.x.SetMaxMemory(0)
	if got := p.do("SIMBA.ACQUIRE new a 60000"); !strings.Contains(got, "acquired") {
		t.Errorf("after the limit was removed, SIMBA.ACQUIRE replied %q, want acquired", got)
	}
}

func TestTheWaitersOfOneMutexTakeAtMostHalfOfMaxMemory(t *testing.T) {
	const most = 20_000
	for way, join := range map[string]string{
		"ACQUIRE":             "SIMBA.ACQUIRE m waiter%d 60000",
		"ZADD":                "ZADD simba:{m}:contender 1 waiter%d",
		"ZADD in a script":    `EVAL "return redis.call('zadd', KEYS[1], 1, ARGV[1])" 1 simba:{m}:contender waiter%d`,
		"ACQUIRE after MULTI": "SIMBA.ACQUIRE m waiter%d 60000",
	} {
		s := newEngineSite(t)
		p := s.dial()
		do := p.do
		if way == "ACQUIRE after MULTI" {
			do = func(command string) string {
				p.expect("MULTI", ok)
				p.expect(command, "+QUEUED\r\n")
				return strings.TrimPrefix(p.do("EXEC"), "*1\r\n")
			}
		}
		s.x.SetMaxMemory(most)
		p.do("SIMBA.ACQUIRE m owner 60000")
		n := 0
		for ; n < most; n++ {
			if got := do(fmt.Sprintf(join, n)); strings.HasPrefix(got, "-OOM ") {
				break
			}
		}
		if used := s.x.store.dataset(); used < most/2 || used > most/2+1000 {
			t.Errorf("%s: %d waiters take %d bytes, want about %d", way, n, used, most/2)
		}
		for _, command := range []string{
			"SIMBA.ACQUIRE other a 60000", "SIMBA.ACQUIRE m owner 60000", "SIMBA.ACQUIRE m waiter3 60000", "SIMBA.ACQUIRE m a 60000 NOQUEUE",
			"ZADD simba:{m}:contender NX 2 waiter4", "ZADD simba:{m}:contender 2 waiter4",
		} {
			if got := p.do(command); strings.HasPrefix(got, "-") {
				t.Errorf("%s: with a full queue, %s replied %q", way, command, got)
			}
		}
		p.do("SIMBA.RELEASE m waiter3")
		if got := do(fmt.Sprintf(join, n)); strings.HasPrefix(got, "-") {
			t.Errorf("%s: after a waiter has left, another one gets %q", way, got)
		}
		p.expect("SIMBA.ACQUIRE m last 60000", oom)
		s.x.SetMaxMemory(0)
		if got := p.do("SIMBA.ACQUIRE m last 60000"); !strings.Contains(got, "queued") {
			t.Errorf("%s: without a limit, ACQUIRE replied %q, want queued", way, got)
		}
	}
}

func TestInfoShowsMaxMemoryAndTheCountedBytes(t *testing.T) {
	s := newSite(t, Config{})
	p := s.dial()
	if got := p.do("INFO memory"); !strings.Contains(got, "\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n") {
		t.Errorf("INFO memory without a limit replied\n%s\nwant maxmemory:0", got)
	}
	s.x.SetMaxMemory(100 << 20)
	p.expect("CONFIG GET maxmemory", bulks("maxmemory", "104857600"))
	got := p.do("INFO memory")
	if !strings.Contains(got, "\r\nmaxmemory:104857600\r\nmaxmemory_policy:noeviction\r\n") || !strings.Contains(got, "\r\nused_memory_dataset:0\r\n") {
		t.Errorf("INFO memory with a limit replied\n%s\nwant maxmemory:104857600", got)
	}
}
