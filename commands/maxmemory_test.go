package commands

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const oom = "-OOM command not allowed when used memory > 'maxmemory'.\r\n"

// fakeMemory is a process' memory with a collector that the test can watch.
type fakeMemory struct {
	memoryLimit
	log strings.Builder

	guard       sync.Mutex // of what follows
	live, dead  uint64     // what the collector would find
	marked      uint64     // what it has found alive when it ran last
	collections int
}

func newFakeMemory(t *testing.T) *fakeMemory {
	f := new(fakeMemory)
	f.init(slog.New(slog.NewTextHandler(&f.log, nil)))
	f.read = func() footprint {
		f.guard.Lock()
		defer f.guard.Unlock()
		return footprint{used: f.live + f.dead, kept: min(f.marked, f.live+f.dead)}
	}
	f.collect = func() {
		f.guard.Lock()
		defer f.guard.Unlock()
		f.dead, f.marked = 0, f.live
		f.collections++
	}
	t.Cleanup(f.close)
	return f
}

// is changes what there is, and lets the limit look at it.
func (f *fakeMemory) is(live, garbage uint64) {
	f.guard.Lock()
	if live < f.live {
		f.dead += f.live - live
	}
	f.live, f.dead = live, f.dead+garbage
	f.guard.Unlock()
	time.Sleep(memoryPeriod)
	synctest.Wait()
}

// ran is how often the collector has run.
func (f *fakeMemory) ran() int {
	f.guard.Lock()
	defer f.guard.Unlock()
	return f.collections
}

const mib = 1 << 20

func TestTheLimitRefusesForWhatIsKeptAndNeverForGarbage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMemory(t)
		f.set(80 * mib)
		f.is(79*mib, 0)
		if f.full.Load() || f.ran() != 0 {
			t.Errorf("below the limit: full %t, %d collections", f.full.Load(), f.ran())
		}
		f.is(79*mib, 500*mib)
		if f.full.Load() || f.ran() != 1 {
			t.Errorf("above it by garbage: full %t, %d collections", f.full.Load(), f.ran())
		}
		f.is(79*mib, 9*mib) // no more than an eighth of the limit
		if f.full.Load() || f.ran() != 1 {
			t.Errorf("above it by little: full %t, %d collections", f.full.Load(), f.ran())
		}
		f.is(81*mib, 0)
		if !f.full.Load() {
			t.Error("above it by what is kept, and not full")
		}
	})
}

func TestWhatIsGivenUpIsSeenWithinASecondThoughNothingIsAllocated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMemory(t)
		f.set(80 * mib)
		f.is(100*mib, 0)
		if !f.full.Load() {
			t.Fatal("not full")
		}
		f.is(70*mib, 0)
		time.Sleep(fullPeriod)
		synctest.Wait()
		if f.full.Load() {
			t.Error("still full")
		}
		n := f.ran()
		time.Sleep(time.Minute)
		if now := f.ran(); now != n {
			t.Errorf("%d collections of a server that has room", now-n)
		}
	})
}

func TestAFullServerCollectsOnceASecondAndLessIfThatTakesLong(t *testing.T) {
	for took, most := range map[time.Duration]int{time.Millisecond: 60, time.Second: 3} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeMemory(t)
			quick := f.collect
			f.collect = func() { time.Sleep(took); quick() }
			f.set(80 * mib)
			f.is(81*mib, 10*mib)
			time.Sleep(10 * time.Second)
			n := f.ran()
			time.Sleep(time.Minute)
			if n = f.ran() - n; n == 0 || n > most {
				t.Errorf("%d collections of %v in a minute, want 1 to %d", n, took, most)
			}
			f.close()
		})
	}
}

func TestCollectionsTakeNoMoreThanAShareOfTheTime(t *testing.T) {
	for _, live := range []uint64{40 * mib, 100 * mib} { // with room, and full
		for _, took := range []time.Duration{time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeMemory(t)
				quick := f.collect
				var spent atomic.Int64
				f.collect = func() { time.Sleep(took); spent.Add(int64(took)); quick() }
				f.set(80 * mib)
				f.is(live, 60*mib)
				spent.Store(0)
				for began := time.Now(); time.Since(began) < 20*time.Second; {
					f.is(live, 11*mib) // 550 MiB a second
				}
				if d := time.Duration(spent.Load()); d == 0 || d > 20*time.Second/share {
					t.Errorf("collections of %v take %v of 20 s", took, d)
				}
				f.close()
			})
		}
	}
}

func TestTheLogTellsOnceThatTheLimitIsReachedAndOnceThatItIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMemory(t)
		f.set(80 * mib)
		f.is(100*mib, 0)
		time.Sleep(time.Minute)
		f.is(60*mib, 0)
		time.Sleep(time.Minute)
		f.close()
		if got := strings.Count(f.log.String(), "\n"); got != 2 ||
			!strings.Contains(f.log.String(), `level=WARN msg="used memory is above maxmemory: what takes more is refused" used=104857600 maxmemory=83886080`) ||
			!strings.Contains(f.log.String(), `level=INFO msg="used memory is no longer above maxmemory: nothing is refused" used=62914560 maxmemory=83886080`) {
			t.Errorf("the log:\n%s", f.log.String())
		}
	})
}

func TestALimitThatIsSetHoldsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMemory(t)
		f.live = 50 * mib
		for _, step := range []struct {
			limit uint64
			full  bool
		}{{0, false}, {40 * mib, true}, {60 * mib, false}, {1, true}, {0, false}, {0, false}, {1, true}} {
			if f.set(step.limit); f.full.Load() != step.full {
				t.Errorf("at %d: full %t", step.limit, f.full.Load())
			}
		}
	})
}

func TestWhatWasGivenUpSinceTheCollectorRanIsNotHeldAgainstALimitThatIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeMemory(t)
		f.live, f.dead, f.marked = 70*mib, 30*mib, 100*mib
		if f.set(80 * mib); f.full.Load() {
			t.Error("full of garbage")
		}
	})
}

func TestTheFootprintIsThatOfTheProcess(t *testing.T) {
	l := new(memoryLimit)
	l.init(slog.New(slog.DiscardHandler))
	l.collect() // or what earlier tests have given up would count
	before := readFootprint()
	block := make([]byte, 64*mib)
	for i := range block {
		block[i] = 1
	}
	l.collect()
	with := readFootprint()
	if with.kept > with.used || with.kept < before.kept+60*mib {
		t.Errorf("with a block of 64 MiB %+v, before it %+v", with, before)
	}
	runtime.KeepAlive(block)
	l.collect()
	if after := readFootprint(); after.kept > with.kept-60*mib {
		t.Errorf("without it %+v, with it %+v", after, with)
	}
}

// Above the limit, both are asked the same. What differs on purpose is in the tests below.
var sameWhenFull = []string{
	"SET new v", "SET new v NX PX 1000", "SETEX new 10 v", "PSETEX new 1000 v", "SETNX new v", "SETNX k v", "GETSET k v", "INCR n", "INCRBY n 2", "DECR n", "HSET h f v", "HSETNX h f v", "HMSET h f v", "HINCRBY h c 1",
	"ZADD simba:{q}:contender 1 b", "SET k other", "SET k", "SETNX k",
	"GET k", "MGET k n", "EXISTS k new", "TTL k", "PEXPIRE k 100000", "EXPIRE n 100", "PERSIST n", "GETEX k EX 1000", "TYPE h", "HGET h f", "HDEL h f", "DEL n", "UNLINK none", "GETDEL none", "PING", "ECHO x",
	"PUBLISH ch m", "WATCH k", "UNWATCH", "CONFIG GET maxmemory", "CONFIG GET maxmemory-policy", "CLIENT SETNAME x",
	"MULTI", "SET k v2", "EXEC", "MULTI", "GET k", "EXEC", "MULTI", "PING", "DISCARD", "MULTI", "EXEC", "MULTI", "SETNX k v", "PING", "DISCARD", "MULTI", "INCR k", "RESET",
	`EVAL "return redis.call('set', 'new', 'v')" 0`, `EVAL "return redis.pcall('set', KEYS[1], 'v')" 1 new`, `EVAL "return redis.call('get', KEYS[1])" 1 k`,
	`EVAL "return redis.call('pexpire', KEYS[1], 1000000)" 1 k`, `EVAL "redis.call('incr', 'n')" 0`, `EVAL "return redis.pcall('hset', 'h', 'f', 'v')['err']" 0`,
	"SUBSCRIBE ch", "PING", "UNSUBSCRIBE ch", "DEL k", "GET k",
}

func TestAFullServerRefusesAndServesWhatRedisDoes(t *testing.T) {
	redis := realRedis(t)
	for _, proto := range []string{"HELLO 2", "HELLO 3"} {
		s := newLockSite(t)
		ours, theirs := s.dial(), redis(t)
		theirs.expect("CONFIG SET maxmemory 0", ok)
		theirs.expect("FLUSHALL", ok)
		ours.do(proto)
		theirs.do(proto)
		for _, command := range []string{"SET k v", "SET n 5", "HSET h f v g w", "MULTI", "INCR n", "GET n"} {
			if want, got := theirs.do(command), ours.do(command); got != want {
				t.Errorf("%s: ours %q, theirs %q", command, got, want)
			}
		}
		other := redis(t)
		other.expect("CONFIG SET maxmemory 1", ok)
		s.x.SetMaxMemory(1)
		for _, command := range append([]string{"EXEC"}, sameWhenFull...) {
			if want, got := theirs.do(command), ours.do(command); got != want {
				t.Errorf("after %s, %s:\n  ours %q\ntheirs %q", proto, command, got, want)
			}
			if command == "RESET" {
				ours.do(proto)
				theirs.do(proto)
			}
		}
		other.expect("CONFIG SET maxmemory 0", ok)
		s.x.SetMaxMemory(0)
		if want, got := theirs.do("SET new v"), ours.do("SET new v"); got != want {
			t.Errorf("with room again: ours %q, theirs %q", got, want)
		}
	}
}

func TestAFullServerRenewsAndTakesBackButGrantsNothingNew(t *testing.T) {
	s := newEngineSite(t)
	p, waiter := s.dial(), s.dial()
	p.do("SIMBA.ACQUIRE m a 60000")
	p.do("SIMBA.ACQUIRE m2 a 60000")
	p.do("SET key a PX 60000")
	waiter.send("SIMBA.ACQUIRE m b 60000 WAIT 0")
	for s.x.backend.Stats().Blocked == 0 {
		time.Sleep(time.Millisecond)
	}
	s.x.SetMaxMemory(1)
	for _, command := range []string{
		"SIMBA.ACQUIRE new a 60000", "SIMBA.ACQUIRE new a 60000 NOQUEUE", "SIMBA.ACQUIRE new a 60000 WAIT 0 SESSION", "SIMBA.ACQUIRE m c 60000", "SIMBA.ACQUIRE m c 60000 WAIT 1000",
		"SET key b", "SET key b XX PX 60000", "SETEX key 60 b",
		`EVAL "redis.call('del', 'key') return redis.call('set', 'new', 'v')" 0`,
	} {
		if got := p.do(command); got != oom && !strings.HasPrefix(got, "-OOM command not allowed when used memory > 'maxmemory'. script: ") {
			t.Errorf("%s: %q", command, got)
		}
	}
	for _, renewal := range []string{"SIMBA.ACQUIRE m a 60000", "SIMBA.ACQUIRE m a 60000 WAIT 0", "SIMBA.GUARD m a 60000"} {
		if got := p.do(renewal); !strings.Contains(got, "renewed") {
			t.Errorf("%s: %q", renewal, got)
		}
	}
	if got := p.do("SIMBA.ACQUIRE m c 60000 NOQUEUE"); !strings.Contains(got, "busy") {
		t.Errorf("NOQUEUE of a mutex that is held: %q", got)
	}
	for _, renewal := range []string{"SET key a PX 70000", "SET key a XX PX 70000", "SETEX key 70 a", "PSETEX key 70000 a"} {
		p.expect(renewal, ok)
	}
	p.expect("SET key a NX PX 1000", "$-1\r\n")
	p.expect(`EVAL "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('set', KEYS[1], ARGV[1], 'xx', 'px', 80000) end" 1 key a`, ok)

	// A transaction that renews or gives up is queued and runs.
	p.expect("MULTI", ok)
	p.expect("SIMBA.GUARD m2 a 60000", "+QUEUED\r\n")
	p.expect("SIMBA.RELEASE m2 a", "+QUEUED\r\n")
	p.expect("PEXPIRE key 90000", "+QUEUED\r\n")
	if got := p.do("EXEC"); !strings.HasPrefix(got, "*3\r\n") || !strings.Contains(got, "renewed") || !strings.HasSuffix(got, ":1\r\n:1\r\n") {
		t.Errorf("EXEC: %q", got)
	}
	p.expect("MULTI", ok)
	p.expect("SIMBA.ACQUIRE m a 60000", oom)
	p.expect("EXEC", failed("EXECABORT Transaction discarded because of previous errors."))

	p.expect("SIMBA.RELEASE m a", ":1\r\n")
	if got := waiter.reply(); !strings.Contains(got, "acquired") {
		t.Errorf("who waited already: %q", got)
	}
	p.expect("DEL key", ":1\r\n")
	if got := p.do("INFO errorstats"); !strings.Contains(got, "errorstat_OOM:count=") {
		t.Errorf("INFO errorstats: %q", got)
	}
	s.x.SetMaxMemory(0)
	if got := p.do("SIMBA.ACQUIRE new a 60000"); !strings.Contains(got, "acquired") {
		t.Errorf("with room again: %q", got)
	}
}

func TestAStoresEngineIsToldThatThereIsNoMemory(t *testing.T) {
	for _, full := range []bool{false, true} {
		s := newSite(t, Config{})
		if full {
			s.x.SetMaxMemory(1)
		}
		p := s.dial()
		p.do("SIMBA.ACQUIRE m a 60000")
		if got := fmt.Sprint(s.backend.asked()); strings.Contains(got, "full=true") != full {
			t.Errorf("full %t: %s", full, got)
		}
	}
}

func TestInfoShowsTheLimitAndWhatItIsComparedWith(t *testing.T) {
	s := newSite(t, Config{})
	p := s.dial()
	if got := p.do("INFO memory"); !strings.Contains(got, "\r\nmaxmemory:0\r\nmaxmemory_human:0B\r\nmaxmemory_policy:noeviction\r\n") {
		t.Errorf("without a limit:\n%s", got)
	}
	s.x.SetMaxMemory(100 << 20)
	p.expect("CONFIG GET maxmemory", bulks("maxmemory", "104857600"))
	got := p.do("INFO memory")
	if !strings.Contains(got, "\r\nmaxmemory:104857600\r\nmaxmemory_human:100.00M\r\nmaxmemory_policy:noeviction\r\n") || !strings.Contains(got, "\r\nused_memory_kept:") {
		t.Errorf("with a limit:\n%s", got)
	}
}
