package redis

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// These tests check that our servers and Simba, the lock library for the JVM, see the same token of
// a tenure.

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
	_, _, _, err := j.State(t.Context(), j.Of.Guard, 10*time.Minute)
	must(t, err)
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
