package dropin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/backendtest/seeds"
)

// seed is a contender of Simba on the JVM: it knows the three scripts and two channels.
type seed struct {
	rdb                       *redis.Client
	key, id                   string
	acquiring, guarding, done string // the scripts
	notices                   <-chan *redis.Message
	told                      int // how often it was told that it is its turn
}

func newSeed(c *contest, id string) *seed {
	c.t.Helper()
	k := &seed{
		rdb: connect(c.t, c.server), key: "simba:{" + c.mutex + "}", id: id,
		acquiring: seeds.SimbaAcquire, guarding: seeds.SimbaGuard, done: seeds.SimbaRelease,
	}
	sub := k.rdb.Subscribe(c.t.Context(), k.key, k.key+":"+id)
	c.t.Cleanup(func() { sub.Close() })
	for range 2 {
		if _, err := sub.Receive(c.t.Context()); err != nil {
			c.t.Fatal(err)
		}
	}
	k.notices = sub.Channel(redis.WithChannelSize(100_000))
	return k
}

// state runs a script that returns the owner and what is left of its lease.
func (k *seed) state(ctx context.Context, source string) (owner string, left time.Duration, err error) {
	text, err := k.rdb.Eval(ctx, source, []string{k.key}, k.id, lease).Text()
	if err != nil {
		return "", 0, err
	}
	owner, rest, _ := strings.Cut(text, "@@")
	ms, err := strconv.ParseInt(rest, 10, 64)
	return owner, time.Duration(ms) * time.Millisecond, err
}

func (k *seed) acquire(ctx context.Context) (string, error) {
	for {
		owner, left, err := k.state(ctx, k.acquiring)
		if err != nil || owner == k.id {
			return owner, err
		}
		if err := k.awaitTurn(ctx, left); err != nil {
			return "", err
		}
	}
}

// awaitTurn returns when the contender is told that it is its turn, or at the end of the owner's lease.
func (k *seed) awaitTurn(ctx context.Context, left time.Duration) error {
	end := time.After(left)
	for {
		select {
		case m := <-k.notices:
			if m.Channel == k.key+":"+k.id && strings.HasPrefix(m.Payload, "released@@") {
				k.told++
				return nil
			}
		case <-end:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%s waits for its turn: %w", k.id, ctx.Err())
		}
	}
}

func (k *seed) release(ctx context.Context) error {
	if owner, _, err := k.state(ctx, k.guarding); err != nil || owner != k.id {
		return fmt.Errorf("%s cannot guard, %q has it: %v", k.id, owner, err)
	}
	n, err := k.rdb.Eval(ctx, k.done, []string{k.key}, k.id).Int()
	if err == nil && n != 1 {
		err = fmt.Errorf("%s has lost its lease", k.id)
	}
	return err
}

func TestSimbasScriptsTakeTurnsWithSimbaAcquire(t *testing.T) {
	t.Parallel()
	const each, turns, pause = 4, 100, 2 * time.Millisecond
	c := newContest(t, "seed")
	seeds := make([]*seed, each)
	for i := range seeds {
		seeds[i] = newSeed(c, fmt.Sprint("seed", i))
	}
	for _, k := range seeds {
		c.enter(k, turns, pause)
	}
	c.enterSimba(each, turns, pause)
	c.end()
	for _, k := range seeds {
		if t.Logf("%s was told of %d turns", k.id, k.told); k.told == 0 {
			t.Errorf("%s was never told of its turn", k.id)
		}
	}
}

func TestSimbasScriptsTakeTurnsAmongThemselves(t *testing.T) {
	t.Parallel()
	const each, turns = 6, 50
	c := newContest(t, "seeds")
	for i := range each {
		c.enter(newSeed(c, fmt.Sprint("seed", i)), turns, 0)
	}
	c.end()
	is(t, c.rdb, int64(0), "exists", "simba:{seeds}", "simba:{seeds}:contender", "seeds")
}

func TestSimbasContenderIsToldOfATurnThatSimbaReleaseGivesIt(t *testing.T) {
	t.Parallel()
	c := newContest(t, "told")
	ours := &simba{c.rdb, c.mutex, "ours"}
	if _, err := ours.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	k := newSeed(c, "seed")
	if owner, left, err := k.state(t.Context(), k.acquiring); err != nil || owner != "ours" || left <= 0 || left > lease*time.Millisecond {
		t.Fatalf("owner %q for %v, %v", owner, left, err)
	}
	is(t, c.rdb, int64(0), "zrank", "simba:{told}:contender", "seed")
	if err := ours.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := k.awaitTurn(t.Context(), lease*time.Millisecond); err != nil || k.told != 1 {
		t.Fatalf("told %d times, %v", k.told, err)
	}
	if owner, err := k.acquire(t.Context()); err != nil || owner != "seed" {
		t.Errorf("after that %q has it, %v", owner, err)
	}
	is(t, c.rdb, "seed", "get", "told")
	is(t, c.rdb, int64(0), "exists", "simba:{told}:contender")
}

func TestSimbasContenderHandsOnToAWaiterOfSimbaAcquire(t *testing.T) {
	t.Parallel()
	c := newContest(t, "handed")
	k := newSeed(c, "seed")
	if _, err := k.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.enterSimba(1, 1, 0)
	for number(t, c.rdb, "zcard", "simba:{handed}:contender") == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := k.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.end()
}
