package crash

import (
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// A contender that dies without RELEASE keeps the mutex until the end of its transition window.
// Until then it could still return and renew.
func TestWaiterOwnsWhenTheTransitionWindowOfADeadOwnerEnds(t *testing.T) {
	s := simbatest.Start(t)
	c, err := redis.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	waiter, err := redis.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer waiter.Close()

	first, err := simbatest.ToRecord(c.Do("SIMBA.ACQUIRE", "job", "a", 100, "TRANSITION", 600_000))
	if err != nil || first["status"] != "acquired" {
		t.Fatalf("ACQUIRE by a returns %v, %v, want acquired", first, err)
	}
	type result struct {
		record simbatest.Record
		err    error
	}
	waited := make(chan result, 1)
	go func() {
		r, err := simbatest.ToRecord(waiter.Do("SIMBA.ACQUIRE", "job", "b", 600_000, "WAIT", 0))
		waited <- result{r, err}
	}()
	simbatest.AwaitBlocked(t, s.Addr, 1)
	ownerOnce(t, c, func(r simbatest.Record) bool { return r["ttl"] == int64(0) })

	// A renewal in the transition window begins both windows anew.
	for _, command := range [][]any{{"SIMBA.GUARD", "job", "a", 100, "TRANSITION", 5000}, {"SIMBA.OWNER", "job"}} {
		if err := c.Send(command[0].(string), command[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	guarded, err := simbatest.ToRecord(c.Receive())
	if err != nil || guarded["status"] != "renewed" || guarded["token"] != first["token"] {
		t.Fatalf("GUARD in the transition window returns %v, %v, want renewed with the same token", guarded, err)
	}
	last, err := simbatest.ToRecord(c.Receive())
	if err != nil || last["owner"] != "a" {
		t.Fatalf("SIMBA.OWNER after GUARD returns %v, %v, want a", last, err)
	}

	got := <-waited
	if got.err != nil || got.record["status"] != "acquired" || got.record["token"].(int64) <= first["token"].(int64) {
		t.Fatalf("ACQUIRE … WAIT by b returns %v, %v, want acquired with a larger token", got.record, got.err)
	}
	next, err := simbatest.ToRecord(c.Do("SIMBA.OWNER", "job"))
	if err != nil || next["owner"] != "b" || next["acquired_at"].(int64) < last["transition_at"].(int64) {
		t.Errorf("SIMBA.OWNER returns %v, %v, want b since %v or later", next, err, last["transition_at"])
	}
	lost, err := simbatest.ToRecord(c.Do("SIMBA.GUARD", "job", "a", 100))
	if err != nil || lost["status"] != "lost" || lost["owner"] != "b" {
		t.Errorf("GUARD by the old owner returns %v, %v, want lost", lost, err)
	}
}

// ownerOnce waits until wanted returns true for the reply of SIMBA.OWNER.
func ownerOnce(t *testing.T, c redis.Conn, wanted func(simbatest.Record) bool) {
	t.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); {
		r, err := simbatest.ToRecord(c.Do("SIMBA.OWNER", "job"))
		if err != nil {
			t.Fatal(err)
		}
		if wanted(r) {
			return
		}
	}
	t.Fatal("SIMBA.OWNER never returns the expected record")
}

// With async a crash can undo acknowledged grants. After a crash, the server makes no new grant
// until such leases must have ended. Owners that it still knows can renew.
func TestAfterACrashInAsyncOnlyKnownOwnersRenew(t *testing.T) {
	s := simbatest.Start(t, "--durability", "async")
	c := simbatest.GoRedis(t, s)
	_, token := simbatest.Acquire(t, c, "job", "a", 600_000)
	simbatest.Acquire(t, c, "other", "x", 600_000)
	// Even with async, the server replies to BREAK only after an fsync, so all earlier changes are
	// on disk.
	if err := c.Do(t.Context(), "SIMBA.BREAK", "other").Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()

	again := simbatest.StartIn(t, s.Dir, "--durability", "async")
	c = simbatest.GoRedis(t, again)
	again.Wants(t, "level=WARN .*recovering from unclean shutdown")
	if r, err := simbatest.ToRecord(c.Do(t.Context(), "SIMBA.GUARD", "job", "a", 600_000, "TOKEN", token).Result()); err != nil || r["status"] != "renewed" {
		t.Errorf("GUARD by an owner that the server knows returns %v, %v, want renewed", r, err)
	}
	if status, _ := simbatest.Acquire(t, c, "new", "n", 1000, "NOQUEUE"); status != "busy" {
		t.Errorf("ACQUIRE by a new contender returns %s, want busy", status)
	}
}
