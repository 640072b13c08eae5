package crash

import (
	"path/filepath"
	"testing"

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
