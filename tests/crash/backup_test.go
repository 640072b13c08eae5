package crash

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func backUp(t *testing.T, s *simbatest.Server) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "backup")
	succeeds(t, "backup", dir, "--url", "redis://"+s.Addr)
	return dir
}

// restore restores a backup to a new data directory.
func restore(t *testing.T, backup string, args ...string) (dataDir string) {
	t.Helper()
	dataDir = filepath.Join(t.TempDir(), "restored")
	succeeds(t, append([]string{"restore", backup, "--data-dir", dataDir}, args...)...)
	return dataDir
}

func succeeds(t *testing.T, args ...string) {
	t.Helper()
	p := simbatest.Launch(t, args...)
	if code := p.Wait(t); code != 0 {
		t.Fatalf("%v exits with code %d, want 0:\n%s", args, code, p.Output())
	}
}

// granter acquires one new mutex after another, and counts the grants.
type granter struct {
	name    string
	granted atomic.Int64
	token   atomic.Int64 // of the last grant
}

func (g *granter) mutex(i int64) string { return fmt.Sprintf("%s-%d", g.name, i) }

func (g *granter) run(ctx context.Context, c *goredis.Client) error {
	for i := int64(1); ; i++ {
		r, err := simbatest.ToRecord(c.Do(ctx, "SIMBA.ACQUIRE", g.mutex(i), g.name, 600_000).Result())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil || r["status"] != "acquired" {
			return fmt.Errorf("ACQUIRE of %s returns %v, %w", g.mutex(i), r, err)
		}
		g.token.Store(r["token"].(int64))
		g.granted.Store(i)
	}
}

// Clients acquire mutexes before, during and after the backup. Then the test kills the server, and
// starts another from the backup.
func TestARestoredServerHasEachGrantBeforeTheBackupAndRepeatsNoToken(t *testing.T) {
	for _, durability := range []string{"always", "async"} {
		t.Run(durability, func(t *testing.T) {
			t.Parallel()
			s := simbatest.Start(t, "--durability", durability)
			ctx, stop := context.WithCancel(t.Context())
			granters := make([]granter, 8)
			errs := make(chan error, len(granters))
			var running sync.WaitGroup
			for i := range granters {
				g := &granters[i]
				g.name = fmt.Sprintf("g%d", i)
				c := simbatest.GoRedis(t, s)
				running.Go(func() { errs <- g.run(ctx, c) })
			}
			await(t, granters, 50)
			before := counts(granters)
			dir := backUp(t, s)
			await(t, granters, slices.Max(counts(granters))+50)
			stop()
			running.Wait()
			for range granters {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			last := int64(0)
			for i := range granters {
				last = max(last, granters[i].token.Load())
			}
			s.Kill()

			again := simbatest.StartIn(t, restore(t, dir, "--owners-stopped"), "--durability", durability)
			c := simbatest.GoRedis(t, again)
			for i := range granters {
				g := &granters[i]
				for n := int64(1); n <= before[i]; n++ {
					r, err := simbatest.ToRecord(c.Do(t.Context(), "SIMBA.OWNER", g.mutex(n)).Result())
					if err != nil || r["owner"] != g.name || r["token"].(int64) <= last {
						t.Fatalf("SIMBA.OWNER %s returns %v, %v, want %s with a token above %d", g.mutex(n), r, err, g.name, last)
					}
				}
			}
			if status, token := simbatest.Acquire(t, c, "new", "n", 1000); status != "acquired" || token <= last {
				t.Errorf("ACQUIRE by a new contender returns %s with token %d, want acquired with a token above %d", status, token, last)
			}
			if valid, err := c.Do(t.Context(), "SIMBA.CHECK", granters[0].mutex(1), 1).Int(); err != nil || valid != 0 {
				t.Errorf("CHECK of an old token returns %d, %v, want 0", valid, err)
			}
		})
	}
}

func await(t *testing.T, granters []granter, n int64) {
	t.Helper()
	simbatest.Await(t, fmt.Sprintf("each granter has %d grants", n), func() bool { return slices.Min(counts(granters)) >= n })
}

func counts(granters []granter) (n []int64) {
	for i := range granters {
		n = append(n, granters[i].granted.Load())
	}
	return n
}

func TestARestoredServerGrantsNothingInItsRecoveryDelayAndLetsOwnersRenew(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	c := simbatest.GoRedis(t, s)
	_, kept := simbatest.Acquire(t, c, "kept", "a", 600_000)
	simbatest.Acquire(t, c, "freed", "a", 600_000)
	simbatest.Must(t, c.Do(t.Context(), "SET", "key", "value").Err())
	dir := backUp(t, s)
	_, later := simbatest.Acquire(t, c, "later", "b", 600_000)
	simbatest.Must(t, c.Do(t.Context(), "SIMBA.RELEASE", "freed", "a").Err())
	s.Kill()

	again := simbatest.StartIn(t, restore(t, dir, "--recovery-delay", "1h"))
	again.Wants(t, `level=WARN .*recovering: .* wait=1h0m0s`)
	c = simbatest.GoRedis(t, again)
	for _, mutex := range []string{"new", "later", "freed"} {
		if status, _ := simbatest.Acquire(t, c, mutex, "newcomer", 1000, "NOQUEUE"); status != "busy" {
			t.Errorf("a new contender for %s gets %s, want busy", mutex, status)
		}
	}
	guard := func(mutex, contender string, token int64) simbatest.Record {
		r, err := simbatest.ToRecord(c.Do(t.Context(), "SIMBA.GUARD", mutex, contender, 600_000, "TOKEN", token).Result())
		simbatest.Must(t, err)
		return r
	}
	if r := guard("kept", "a", kept); r["status"] != "renewed" || r["token"] != kept {
		t.Errorf("GUARD by an owner that the backup has returns %v, want renewed", r)
	}
	if r := guard("later", "b", later); r["status"] != "lost" {
		t.Errorf("GUARD by an owner that the backup lacks returns %v, want lost", r)
	}
	// The owner a released this mutex after the backup. So the server must not trust the backup
	// when a sends ACQUIRE.
	if status, _ := simbatest.Acquire(t, c, "freed", "a", 600_000, "NOQUEUE"); status != "busy" {
		t.Errorf("ACQUIRE by an owner that the backup has returns %s, want busy", status)
	}
	if value, err := c.Get(t.Context(), "key").Result(); err != nil || value != "value" {
		t.Errorf("after restore GET returns %q, %v", value, err)
	}
	if events, err := c.Do(t.Context(), "SIMBA.HISTORY", "kept").Slice(); err != nil || len(events) != 1 {
		t.Errorf("after restore the history of the mutex kept is %v, %v, want one event", events, err)
	}
}
