package abuse

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestEachOfThousandsOfWaitersIsGrantedOnce(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	owner := v.client()
	if r, err := simbatest.ToRecord(owner.Do("SIMBA.ACQUIRE", "crowded", "owner", bystanderTTL)); err != nil || r["status"] != "acquired" {
		t.Fatalf("SIMBA.ACQUIRE returns %v, %v, want acquired", r, err)
	}
	const waiters = 2000
	conns := v.raws(waiters)
	if err := v.each(waiters, func(i int) error {
		return conns[i].send(words("SIMBA.ACQUIRE", "crowded", fmt.Sprint("w", i), bystanderTTL, "WAIT", 0))
	}); err != nil {
		t.Fatal(err)
	}
	// Blocked bystanders count, too.
	v.until("all waiters are blocked", func() bool { return v.info("blocked_clients") >= waiters })
	v.servesOthers()
	var stay []*raw
	for i, c := range conns {
		if i%2 == 0 {
			c.reset()
			continue
		}
		stay = append(stay, c)
	}
	tokens := make(chan int64, len(stay))
	failed := make(chan error, len(stay))
	for _, c := range stay {
		go func() {
			r, err := c.record()
			if err == nil && r["status"] != "acquired" {
				err = fmt.Errorf("a waiter gets the reply %v, want acquired", r)
			}
			var token int64
			if err == nil {
				token, err = strconv.ParseInt(r["token"], 10, 64)
			}
			if err != nil {
				failed <- err
				return
			}
			tokens <- token
			if line, err := c.ask(words("SIMBA.RELEASE", "crowded", r["owner"], "TOKEN", token)); err != nil || line != ":1" {
				failed <- fmt.Errorf("SIMBA.RELEASE after %v returns %s, %w", r, line, err)
			}
		}()
	}
	if n, err := owner.Do("SIMBA.RELEASE", "crowded", "owner"); n != int64(1) || err != nil {
		t.Fatalf("SIMBA.RELEASE returns %v, %v, want 1", n, err)
	}
	last := int64(0)
	for range stay {
		select {
		case token := <-tokens:
			if token <= last { // an owner sends its token to the channel before it releases
				t.Fatalf("a waiter gets the token %d, want more than %d, the last one", token, last)
			}
			last = token
		case err := <-failed:
			t.Fatal(err)
		}
	}
	v.servesOthers()
	v.costsAtMost(waiters * 32 << 10)
	owner.Close()
	hangUp(conns)
	v.recovers()
}
