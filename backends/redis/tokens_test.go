package redis

import (
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// These tests check that our servers and Simba, the lock library for the JVM, see the same token of
// a tenure.

func TestTokensGrowAcrossOurAndSimbaTenures(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	other := serve(t, "redis://"+s.Addr, noNotices{})
	for _, of := range seeds.Generations {
		t.Run(of.Name, func(t *testing.T) {
			mutex := "m" + of.Name
			j := newSimbaContender(t, s.Addr, of, mutex, "jvm")
			var last uint64
			for i := range 5 {
				theirs := j.mustAcquire()
				seen := owner(t, b, mutex)
				if seen.Owner != "jvm" || seen.Token <= last || of.Tokens && seen.Token != theirs {
					t.Fatalf("round %d, OWNER: %+v; want jvm with a token above %d; Simba has token %d", i, seen, last, theirs)
				}
				if of.Tokens && i > 0 && seen.Token != last+1 {
					t.Errorf("round %d: token %d follows %d; want the next number", i, seen.Token, last)
				}
				j.run(of.Guard, 120_000)
				for _, e := range []*Backend{b, other} {
					if !isCurrent(t, e, mutex, seen.Token) || isCurrent(t, e, mutex, last) {
						t.Errorf("round %d: CHECK of %d is false, or CHECK of %d is true; want the reverse", i, seen.Token, last)
					}
				}
				j.release()

				ours, _ := acquire(t, other, mutex, "ours", time.Minute, nil)
				if ours.Status != simba.StatusAcquired || ours.Token <= seen.Token {
					t.Fatalf("round %d, ACQUIRE of ours: %+v; want acquired with a token above %d",
						i, ours, seen.Token)
				}
				if got := readToken(t, c, seeds.Token(mutex)); got != ours.Token {
					t.Errorf("round %d: the token key has %d, ACQUIRE returned %d", i, got, ours.Token)
				}
				if got := readToken(t, c, seeds.Fence(mutex)); got != ours.Token {
					t.Errorf("round %d: the fence has %d, ACQUIRE returned %d", i, got, ours.Token)
				}
				if _, shown := j.acquire(time.Minute); of.Tokens && shown != ours.Token {
					t.Errorf("round %d: Simba reads token %d, ACQUIRE returned %d", i, shown, ours.Token)
				}
				if _, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: mutex, Contender: "ours", TTL: 10 * time.Minute}); err != nil {
					t.Fatal(err)
				}
				if ms := c.PTTL(t.Context(), seeds.Token(mutex)).Val(); ms < 9*time.Minute {
					t.Errorf("round %d: after a renewal for 10 minutes the token key expires in %v", i, ms)
				}
				c.Del(t.Context(), seeds.Queue(mutex)) // so that there is no reservation for Simba
				if !release(t, b, mutex, "ours") || readToken(t, c, seeds.Token(mutex)) != 0 {
					t.Errorf("round %d: the token key outlives the tenure", i)
				}
				if ms := c.PTTL(t.Context(), seeds.Fence(mutex)).Val(); ms != -1 {
					t.Errorf("round %d: the fence expires in %v, want never", i, ms)
				}
				last = ours.Token
			}
		})
	}
}

func TestTwoTenuresAroundAnotherHaveDifferentTokens(t *testing.T) {
	s := stores.Redis(t)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	for name, story := range map[string]struct{ first, between seeds.Generation }{
		"the token key shows it, 3.3 around 3.3": {seeds.Simba33, seeds.Simba33},
		"the token key shows it, 4.0 around 3.1": {seeds.Simba40, seeds.Simba31},
		"the fence shows it, 3.1 around 3.3":     {seeds.Simba31, seeds.Simba33},
		"the fence shows it, 2.9 around 4.0":     {seeds.Simba29, seeds.Simba40},
	} {
		t.Run(name, func(t *testing.T) {
			mutex := strings.ReplaceAll(name, " ", "-")
			j := newSimbaContender(t, s.Addr, story.first, mutex, "j")
			k := newSimbaContender(t, s.Addr, story.between, mutex, "k")
			j.mustAcquire()
			older := owner(t, b, mutex)
			j.release()
			k.mustAcquire()
			k.release()
			theirs := j.mustAcquire()
			if isCurrent(t, b, mutex, older.Token) {
				t.Errorf("CHECK of the older tenure's token %d: true; want false", older.Token)
			}
			now := owner(t, b, mutex)
			if now.Owner != "j" || now.Token <= older.Token || story.first.Tokens && now.Token != theirs {
				t.Errorf("OWNER: %+v; want j with a larger token than in %+v; Simba has token %d", now, older, theirs)
			}
			if o, _ := acquire(t, b, mutex, "j", time.Minute, nil); o.Status != simba.StatusRenewed || o.Token != now.Token {
				t.Errorf("ACQUIRE of j: %+v; want renewed with OWNER's token", o)
			}
		})
	}
}

func TestOurTokenIsLargerThanThatOfUnseenTenure(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	// far is larger than any token that the clock makes.
	const far = 9_000_000_000_000_000
	must(t, c.Set(t.Context(), seeds.Fence("m"), far, 0).Err())
	j := newSimbaContender(t, s.Addr, seeds.Simba33, "m", "j")
	if token := j.mustAcquire(); token != far+1 {
		t.Fatalf("acquire of Simba: token %d; want the number after the fence's", token)
	}
	j.release()
	if o, _ := acquire(t, b, "m", "a", time.Minute, nil); o.Token != far+2 {
		t.Errorf("ACQUIRE of a: %+v; want the token above that of the unseen tenure", o)
	}
	release(t, b, "m", "a")
	if token := j.mustAcquire(); token != far+3 {
		t.Errorf("acquire of Simba: token %d; want the number after a's token", token)
	}
}

func TestTokensOfSimbaAndOursGrowAfterFlush(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	var last uint64
	for i := range 3 {
		o, _ := acquire(t, b, "m", "a", time.Minute, nil)
		if o.Status != simba.StatusAcquired || o.Token <= last {
			t.Fatalf("ACQUIRE of a: %+v; want acquired with a token above %d", o, last)
		}
		last = o.Token
		if i == 1 {
			release(t, b, "m", "a")
			j := newSimbaContender(t, s.Addr, seeds.Simba33, "m", "j")
			if last = j.mustAcquire(); last != o.Token+1 {
				t.Errorf("Simba has token %d after %d, want the next number", last, o.Token)
			}
		}
		must(t, c.FlushDB(t.Context()).Err())
	}
}

// Simba 3.1 has no tokens, so its renewal moves the end of the lock only.
func TestOldSimbaRenewalProlongsTheToken(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr, noNotices{})
	j := newSimbaContender(t, s.Addr, seeds.Simba31, "m", "j")
	j.mustAcquire()
	first := owner(t, b, "m")
	j.run(j.of.Guard, 600_000)
	if o := owner(t, b, "m"); o.Token != first.Token || o.Transition < 9*time.Minute {
		t.Errorf("OWNER after the renewal: %+v; want the token of %+v and the longer lease", o, first)
	}
	if ms := c.PTTL(t.Context(), seeds.Token("m")).Val(); ms < 9*time.Minute {
		t.Errorf("the token key expires in %v, want 9 minutes or more", ms)
	}
	must(t, c.Del(t.Context(), seeds.Token("m")).Err())
	if o := owner(t, b, "m"); o.Token != first.Token {
		t.Errorf("OWNER without the token key: %+v; want the token of %+v", o, first)
	}
}

func TestIdleFenceExpiresOnlyWithFenceTTL(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	b := serve(t, "redis://"+s.Addr+"?fence-ttl=1h", noNotices{})
	const day = 24 * time.Hour
	left := func() time.Duration { return c.PTTL(t.Context(), seeds.Fence("m")).Val() }
	acquire(t, b, "m", "a", time.Minute, nil)
	if ms := left(); ms < time.Hour || ms > time.Hour+2*time.Minute {
		t.Errorf("after a grant for a minute the fence expires in %v, want an hour and a minute", ms)
	}
	if _, err := b.Guard(t.Context(), simba.GuardRequest{Mutex: "m", Contender: "a", TTL: day}); err != nil {
		t.Fatal(err)
	}
	if ms := left(); ms < day+time.Hour-time.Minute || ms > day+time.Hour {
		t.Errorf("after a renewal for a day the fence expires in %v, want a day and an hour", ms)
	}
	release(t, b, "m", "a")
	last := readToken(t, c, seeds.Fence("m"))
	if err := c.Del(t.Context(), seeds.Fence("m")).Err(); err != nil { // as if it had expired
		t.Fatal(err)
	}
	j := newSimbaContender(t, s.Addr, seeds.Simba33, "m", "j")
	if token := j.mustAcquire(); token != 1 {
		t.Errorf("Simba has token %d, want 1 again", token)
	}
	if o := owner(t, b, "m"); o.Token <= last { // the record is still there
		t.Errorf("OWNER: %+v; want a token above %d", o, last)
	}
}
