package crash

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// unshared returns a command that runs a program in its own namespaces. If the machine does not
// allow this, unshared skips the test, or fails it with CI=true.
func unshared(t *testing.T, flags ...string) []string {
	t.Helper()
	words := append([]string{"unshare"}, flags...)
	out, err := exec.Command(words[0], append(words[1:], "true")...).CombinedOutput()
	if err != nil {
		need.Missing(t, "namespaces by %v: %v: %s", words, err, out)
	}
	return words
}

// startBy works like simbatest.StartIn, with words before the server's command.
func startBy(t *testing.T, words []string, dir string) *simbatest.Server {
	t.Helper()
	s := simbatest.New(t, "--data-dir", dir)
	s.Command = append(words[:len(words):len(words)], simbatest.Binary(t))
	s.Start()
	return s
}

func replyOf(t *testing.T, s *simbatest.Server, command string, args ...any) any {
	t.Helper()
	c := simbatest.Conn(t, s)
	reply, err := c.Do(command, args...)
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", command, args, err, s.Output())
	}
	return reply
}

// owned returns the reply to SIMBA.OWNER. The mutex must have an owner.
func owned(t *testing.T, s *simbatest.Server, mutex string) simbatest.Record {
	t.Helper()
	r, err := simbatest.ToRecord(replyOf(t, s, "SIMBA.OWNER", mutex), nil)
	if err != nil || r == nil {
		t.Fatalf("SIMBA.OWNER %s: %v, %v, want an owner", mutex, r, err)
	}
	return r
}

// A container can shift the boot clock, but has the boot id of its machine. If the server took this
// for the same boot, a lease could count by two clocks.
func TestAnotherOffsetOfTheBootClockIsAnotherBoot(t *testing.T) {
	t.Parallel()
	const ttl, transition = 600_000, 60_000
	shifted := unshared(t, "--time", "--boottime", "1000000", "--fork", "--kill-child")
	further := unshared(t, "--time", "--boottime", "2000000", "--fork", "--kill-child")
	dir := t.TempDir() + "/data"
	s := startBy(t, nil, dir)
	replyOf(t, s, "SIMBA.ACQUIRE", "m", "alice", ttl, "TRANSITION", transition)
	last := owned(t, s, "m")
	for _, step := range []struct {
		name  string
		words []string
		again bool // whether the server must find the boot of the previous step
	}{
		{"the boot clock is not shifted", nil, true},
		{"the boot clock is shifted", shifted, false},
		{"the boot clock is shifted by the same offset", shifted, true},
		{"the boot clock is shifted further", further, false},
		{"the boot clock is no longer shifted", nil, false},
		{"the boot clock is still not shifted", nil, true},
	} {
		s.Kill()
		s = startBy(t, step.words, dir)
		got := owned(t, s, "m")
		if got["owner"] != "alice" || got["token"] != last["token"] {
			t.Errorf("%s: SIMBA.OWNER returns %v, want alice with token %v", step.name, got, last["token"])
		}
		if left := got["transition"].(int64); left > ttl+transition || left < ttl {
			t.Errorf("%s: %d ms of the lease are left, of %d granted", step.name, left, ttl+transition)
		}
		if same := got["acquired_at"] == last["acquired_at"]; same != step.again {
			t.Errorf("%s: acquired_at is %v, in the previous step %v; want the same: %v", step.name, got["acquired_at"], last["acquired_at"], step.again)
		}
		last = got
	}
}

func TestWithoutProcEveryStartIsAReboot(t *testing.T) {
	t.Parallel()
	const ttl = 600_000
	without := append(unshared(t, "--mount"), "sh", "-c", `mount -t tmpfs none /proc && exec "$0" "$@"`)
	dir := t.TempDir() + "/data"
	s := startBy(t, without, dir)
	replyOf(t, s, "SIMBA.ACQUIRE", "m", "alice", ttl)
	last := owned(t, s, "m")
	for range 2 {
		if log := s.Output(); strings.Count(log, "the boot of the machine is unknown") != 1 || !strings.Contains(log, "/proc/") {
			t.Errorf("the log is\n%s\nwant one warning that names the missing file", log)
		}
		s.Kill()
		s = startBy(t, without, dir)
		got := owned(t, s, "m")
		if got["owner"] != "alice" || got["token"] != last["token"] || got["acquired_at"].(int64) <= last["acquired_at"].(int64) {
			t.Errorf("after a restart SIMBA.OWNER returns %v, want alice with token %v and a lease that begins anew", got, last["token"])
		}
		if left := got["ttl"].(int64); left > ttl || left < ttl/2 {
			t.Errorf("%d ms of the lease are left, of %d granted", left, ttl)
		}
		last = got
	}
	if info := replyOf(t, s, "INFO"); !strings.Contains(string(info.([]byte)), "uptime_in_seconds:") {
		t.Errorf("INFO has no uptime_in_seconds: %s", info)
	}
}

// Writes to removed files succeed. So a server that did not notice the loss would acknowledge
// grants that a restart forgets.
func TestAServerWhoseDataDirectoryIsLostEndsAsForAFailedDisk(t *testing.T) {
	for name, lose := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"renamed": func(dir string) error { return os.Rename(dir, dir+".old") },
		"replaced by a copy": func(dir string) error {
			return exec.Command("sh", "-c", `cp -a "$0" "$0.new" && mv "$0" "$0.old" && mv "$0.new" "$0"`, dir).Run()
		},
	} {
		for _, durability := range []string{"always", "async"} {
			t.Run(name+"/"+durability, func(t *testing.T) {
				t.Parallel()
				s := simbatest.Start(t, "--durability", durability)
				c := simbatest.Conn(t, s)
				simbatest.Do(t, c, "SIMBA.ACQUIRE", "m", "alice", 60_000)
				simbatest.Must(t, lose(s.Dir))
				lost := time.Now()
				granted := 0
				var err error
				for n := 0; err == nil && time.Since(lost) < simbatest.Patience; n++ {
					if _, err = c.Do("SIMBA.ACQUIRE", fmt.Sprint("m", n), "alice", 60_000); err == nil {
						granted++
					}
				}
				took := time.Since(lost)
				if code := s.Wait(t); code != 74 {
					t.Errorf("the server exits with code %d, want 74", code)
				}
				// The time is only logged: the tests of persist check it in fake time.
				t.Logf("the server ended after %v and %d grants", took.Round(time.Millisecond), granted)
				// The second error occurs if the journal begins a new segment before the server
				// notices.
				s.Wants(t, `level=ERROR msg="the data directory failed, exiting" dir=\S+ err="(LOCK: it was removed or replaced|.* no such file)`)
			})
		}
	}
}
