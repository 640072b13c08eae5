//go:build !race

package crash

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// The backup of a hundred thousand mutexes has about 40 MB. Neither the server nor the commands may
// have all of it in memory at once.
func TestBackupAndRestoreOfManyMutexesNeedLittleMemory(t *testing.T) {
	const n = 100_000
	dir, dataDir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored")
	s := simbatest.Start(t)
	backsUp := peak(t, "backup", dir+"0", "--url", "redis://"+s.Addr)
	restores := peak(t, "restore", dir+"0", "--data-dir", dataDir+"0", "--owners-stopped")

	// The server reads 1 MiB a second from each connection.
	var acquiring sync.WaitGroup
	for first := range 50 {
		c := simbatest.GoRedis(t, s)
		acquiring.Go(func() { acquireLong(t, c, first, 50, n) })
	}
	acquiring.Wait()
	debug.FreeOSMemory() // a lower bound for peak: see there

	// The first backup brings the checkpoint up to date, which needs memory of its own.
	succeeds(t, "backup", dir+"1", "--url", "redis://"+s.Addr)
	before := resetPeak(t, s.Pid())
	backsUp = peak(t, "backup", dir, "--url", "redis://"+s.Addr) - backsUp
	serves := peakOf(t, s.Pid()) - before
	restores = peak(t, "restore", dir, "--data-dir", dataDir, "--owners-stopped") - restores

	info, err := os.Stat(filepath.Join(dir, "simba-resp.backup"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() < 30<<20 {
		t.Fatalf("the backup has only %d bytes", info.Size())
	}
	for what, more := range map[string]int64{
		"the server": serves, "the backup": backsUp, "the restore": restores,
	} {
		t.Logf("%s needed %d KiB more memory for a backup of %d KiB", what, more>>10, info.Size()>>10)
		if more > info.Size() {
			t.Errorf("%s needed %d bytes more memory for a backup of %d bytes", what, more, info.Size())
		}
	}
	again := simbatest.StartIn(t, dataDir)
	if held, err := simbatest.GoRedis(t, again).DBSize(t.Context()).Result(); err != nil || held != n {
		t.Errorf("%d mutexes are held, %v; want %d", held, err, n)
	}
}

// acquireLong acquires every step-th mutex from first up to n. The names of the mutexes and of the
// owner are long.
func acquireLong(t *testing.T, c *goredis.Client, first, step, n int) {
	for first < n {
		p := c.Pipeline()
		for range 50 {
			mutex := fmt.Sprintf("%s%06d", strings.Repeat("m", 240), first)
			p.Do(t.Context(), "SIMBA.ACQUIRE", mutex, strings.Repeat("o", 120), 600_000)
			first += step
		}
		if _, err := p.Exec(t.Context()); err != nil {
			t.Error(err)
			return
		}
	}
}

// peak runs the program to its end, and returns the most memory that it had, in bytes. The figure
// is at least the present memory of the test, since the kernel counts this for the new process.
func peak(t *testing.T, args ...string) int64 {
	t.Helper()
	cmd := exec.Command(simbatest.Binary(t), args...)
	cmd.Env = simbatest.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// resetPeak resets the kernel's record of a process's highest memory. It returns the present
// memory.
func resetPeak(t *testing.T, pid int) int64 {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
	return peakOf(t, pid)
}

// peakOf returns the most memory that a process has had, in bytes.
func peakOf(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	match := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		t.Fatalf("no VmHWM in %s", status)
	}
	kB, err := strconv.ParseInt(string(match[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kB << 10
}
