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

// The backup has about 40 MB. Neither the server nor a command may have all of it in memory.
func TestBackupAndRestoreOfManyMutexesNeedLittleMemory(t *testing.T) {
	const n = 100_000
	dir, dataDir := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "restored")
	s := simbatest.Start(t)
	backsUp := peak(t, "backup", dir+"0", "--url", "redis://"+s.Addr)
	restores := peak(t, "restore", dir+"0", "--data-dir", dataDir+"0", "--owners-stopped")

	// Use many connections, since the server reads only 1 MiB a second from each.
	var acquiring sync.WaitGroup
	for first := range 50 {
		c := simbatest.GoRedis(t, s)
		acquiring.Go(func() { acquireLong(t, c, first, 50, n) })
	}
	acquiring.Wait()
	debug.FreeOSMemory() // since peak includes the memory of the test

	// The first backup after changes writes a checkpoint, which needs memory of its own.
	succeeds(t, "backup", dir+"1", "--url", "redis://"+s.Addr)
	before := resetPeak(t, s.Pid())
	backsUp = peak(t, "backup", dir, "--url", "redis://"+s.Addr) - backsUp
	serves := peakOf(t, s.Pid()) - before
	restores = peak(t, "restore", dir, "--data-dir", dataDir, "--owners-stopped") - restores

	info, err := os.Stat(filepath.Join(dir, "simba-resp.backup"))
	simbatest.Must(t, err)
	if info.Size() < 30<<20 {
		t.Fatalf("the backup has %d bytes, want at least 30 MiB", info.Size())
	}
	for what, more := range map[string]int64{
		"the server": serves, "the backup": backsUp, "the restore": restores,
	} {
		t.Logf("%s needed %d KiB more memory for a backup of %d KiB", what, more>>10, info.Size()>>10)
		if more > info.Size() {
			t.Errorf("%s needed %d bytes more memory, want at most %d, the size of the backup", what, more, info.Size())
		}
	}
	again := simbatest.StartIn(t, dataDir)
	if held, err := simbatest.GoRedis(t, again).DBSize(t.Context()).Result(); err != nil || held != n {
		t.Errorf("DBSIZE of the restored server returns %d, %v, want %d", held, err, n)
	}
}

// acquireLong acquires every step-th mutex from first up to n. All names are long.
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

// peak runs the program to its end, and returns its highest memory in bytes. The kernel counts the
// memory of the test for the new process, so the result is at least that.
func peak(t *testing.T, args ...string) int64 {
	t.Helper()
	cmd := exec.Command(simbatest.Binary(t), args...)
	cmd.Env = simbatest.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
}

// resetPeak resets the kernel's record of a process's highest memory, and returns the current
// memory in bytes.
func resetPeak(t *testing.T, pid int) int64 {
	t.Helper()
	simbatest.Must(t, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0))
	return peakOf(t, pid)
}

func peakOf(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	simbatest.Must(t, err)
	match := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		t.Fatalf("no VmHWM in %s", status)
	}
	kB, err := strconv.ParseInt(string(match[1]), 10, 64)
	simbatest.Must(t, err)
	return kB << 10
}
