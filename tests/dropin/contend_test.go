package dropin

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// lease is one that a busy machine does not lose, in milliseconds.
const lease = 10_000

// contender wants a mutex again and again.
type contender interface {
	// acquire returns when the contender has the mutex, and the value that it has it by.
	acquire(ctx context.Context) (owner string, err error)
	release(ctx context.Context) error
}

// contest is some contenders' for a mutex.
type contest struct {
	t       *testing.T
	server  *simbatest.Server
	mutex   string
	rdb     *redis.Client // of the witness
	noted   tenures
	running sync.WaitGroup
}

func newContest(t *testing.T, mutex string) *contest {
	t.Helper()
	s := simbatest.Start(t)
	return &contest{t: t, server: s, mutex: mutex, rdb: connect(t, s)}
}

// enter has a contender take that many turns, with a pause after each.
func (c *contest) enter(k contender, turns int, pause time.Duration) {
	c.running.Go(func() {
		for n := range turns {
			if err := c.turn(k); err != nil {
				c.t.Errorf("turn %d of %d of %T: %v", n, turns, k, err)
				return
			}
			time.Sleep(pause)
		}
	})
}

func (c *contest) turn(k contender) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), simbatest.Patience)
	defer cancel()
	owner, err := k.acquire(ctx)
	if err != nil {
		return err
	}
	from := clock()
	o, err := record(ctx, c.rdb, "simba.owner", c.mutex)
	if err != nil {
		return err
	}
	if o == nil || o["owner"] != owner {
		return fmt.Errorf("%s has it, and by the server the owner is %v", owner, o)
	}
	c.noted.add(tenure{owner: owner, token: uint64(o["token"].(int64)), from: from, to: clock()})
	return k.release(ctx)
}

// end waits until all have had their turns, and checks that there were never two owners.
func (c *contest) end() {
	c.t.Helper()
	c.running.Wait()
	c.t.Logf("turns: %v", c.noted.neverTwo(c.t, c.rdb, c.mutex))
}

// simba is a contender that knows SIMBA.ACQUIRE.
type simba struct {
	rdb       *redis.Client
	mutex, id string
}

func (k *simba) acquire(ctx context.Context) (string, error) {
	o, err := record(ctx, k.rdb, "simba.acquire", k.mutex, k.id, lease, "wait", 0)
	if err == nil && o["status"] != "acquired" {
		err = fmt.Errorf("simba.acquire: %v", o)
	}
	return k.id, err
}

func (k *simba) release(ctx context.Context) error {
	n, err := k.rdb.Do(ctx, "simba.release", k.mutex, k.id).Int()
	if err == nil && n != 1 {
		err = fmt.Errorf("%s has lost its lease", k.id)
	}
	return err
}

// enterSimba has contenders enter that know SIMBA.ACQUIRE.
func (c *contest) enterSimba(contenders, turns int, pause time.Duration) {
	c.t.Helper()
	for i := range contenders {
		c.enter(&simba{connect(c.t, c.server), c.mutex, fmt.Sprint("simba", i)}, turns, pause)
	}
}
