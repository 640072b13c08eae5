package dropin

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/conformance/seeds"
)

// springPause is the time between two tries of the spin lock. Spring's default is 100 ms.
const springPause = 20 * time.Millisecond

// spring is a contender that acts like the spin lock of Spring Integration's RedisLockRegistry.
type spring struct {
	rdb                *redis.Client
	key, id            string
	obtaining, removal *redis.Script
}

func newSpring(c *contest, id, removal string) *spring {
	c.t.Helper()
	return &spring{connect(c.t, c.server), c.mutex, id, redis.NewScript(seeds.SpringObtain), redis.NewScript(removal)}
}

// yes runs a script that returns a boolean. Like Spring, it sends EVALSHA, and EVAL if the server
// does not know the script.
func (k *spring) yes(ctx context.Context, s *redis.Script, args ...any) (bool, error) {
	ok, err := s.Run(ctx, k.rdb, []string{k.key}, args...).Bool()
	if err == redis.Nil { // Lua's false
		return false, nil
	}
	return ok, err
}

func (k *spring) acquire(ctx context.Context) (string, error) {
	for {
		ok, err := k.yes(ctx, k.obtaining, k.id, lease)
		if err != nil || ok {
			return k.id, err
		}
		select {
		case <-time.After(springPause):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (k *spring) release(ctx context.Context) error {
	if ok, err := k.yes(ctx, k.obtaining, k.id, lease); err != nil || !ok { // the lock is reentrant
		return fmt.Errorf("%s cannot obtain its own lock again: %v", k.id, err)
	}
	ok, err := k.yes(ctx, k.removal, k.id)
	if err == nil && !ok {
		err = fmt.Errorf("%s has lost its lease", k.id)
	}
	return err
}

func TestSpringLocksContendWithSimbaAcquire(t *testing.T) {
	t.Parallel()
	c := newContest(t, "spring-locks:orders") // registryKey:lockKey
	for i := range 2 {
		c.enter(newSpring(c, fmt.Sprint("unlink", i), seeds.SpringUnlink), 15, springPause)
		c.enter(newSpring(c, fmt.Sprint("delete", i), seeds.SpringDelete), 15, springPause)
	}
	// These clients pause, because a waiter gets the mutex before a client that polls.
	c.enterSimba(2, 20, 2*springPause)
	c.end()
}
