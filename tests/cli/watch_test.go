package cli

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// watch starts the command watch, and returns when it has subscribed.
func watch(t *testing.T, s *simbatest.Server, args ...string) *simbatest.Process {
	t.Helper()
	cmd := exec.Command(simbatest.Binary(t), append([]string{"watch"}, args...)...)
	cmd.Env = append(simbatest.Environ(), "SIMBA_URL="+url(s))
	w := simbatest.RunCmd(t, cmd)
	w.Wants(t, `^# watching simba-events:`)
	return w
}

func TestWatchPrintsEventsOfOneMutex(t *testing.T) {
	s := simbatest.Start(t)
	w := watch(t, s, "job")
	asJSON := watch(t, s, "job", "--json")
	c := simbatest.GoRedis(t, s)
	simbatest.Acquire(t, c, "other", "x", 60_000)
	simbatest.Acquire(t, c, "job", "alice", 60_000)
	simbatest.Acquire(t, c, "job", "bob", 60_000)
	simbatest.Must(t, c.Do(t.Context(), "SIMBA.BREAK", "job", "REASON", "stuck\x1b").Err())
	w.Wants(t, `^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\S+  acquired  job  alice  token \d+$`)
	w.Wants(t, `  queued    job  bob$`)
	w.Wants(t, `  broken    job  alice  token \d+  \(stuck\\x1b\)$`)
	asJSON.Wants(t, `^\{"seq":\d+,"at":\d+,"event":"broken","mutex":"job","owner":"alice","token":\d+,"reason":"stuck\\u001b"\}$`)
	if strings.Contains(w.Output(), "other") {
		t.Errorf("watch shows events of another mutex:\n%s", w.Output())
	}
	for _, end := range []struct {
		p   *simbatest.Process
		sig syscall.Signal
	}{{w, syscall.SIGINT}, {asJSON, syscall.SIGTERM}} {
		end.p.Signal(end.sig)
		if code := end.p.Wait(t); code != 0 {
			t.Errorf("exit code %d after %v:\n%s", code, end.sig, end.p.Output())
		}
	}
}

func TestWatchReconnectsAfterARestart(t *testing.T) {
	s := simbatest.Start(t)
	w := watch(t, s, "job*")
	c := simbatest.GoRedis(t, s)
	simbatest.Acquire(t, c, "job:1", "alice", 600_000)
	w.Wants(t, `acquired  job:1  alice`)
	s.Kill()
	_, line := w.WantsAfter(t, 0, `^# disconnected, trying again: `)
	s.Start()
	w.WantsAfter(t, line, `^# connected again; events meanwhile are not shown$`)
	if n := strings.Count(w.Output(), "# disconnected"); n != 1 {
		t.Errorf("watch reports one outage %d times:\n%s", n, w.Output())
	}
	simbatest.Acquire(t, simbatest.GoRedis(t, s), "job:2", "bob", 600_000)
	w.WantsAfter(t, line, `acquired  job:2  bob`)
}

// A frozen server keeps its connections open. So watch must notice that replies are missing.
func TestWatchReconnectsToAServerThatHung(t *testing.T) {
	t.Parallel()
	s := simbatest.Start(t)
	w := watch(t, s, "job")
	s.Pause()
	_, line := w.WantsAfter(t, 0, `^# disconnected, trying again: .*no reply in time`)
	s.Resume()
	w.WantsAfter(t, line, `^# connected again`)
	simbatest.Acquire(t, simbatest.GoRedis(t, s), "job", "bob", 600_000)
	w.WantsAfter(t, line, `acquired  job  bob`)
}

func TestWatchEndsWhileItReconnects(t *testing.T) {
	s := simbatest.Start(t)
	w := watch(t, s, "job")
	s.Kill()
	w.Wants(t, `^# disconnected`)
	w.Signal(syscall.SIGINT)
	if code := w.Wait(t); code != 0 {
		t.Errorf("watch exits with code %d:\n%s", code, w.Output())
	}
}

func TestWatchWithoutTheRightEnds(t *testing.T) {
	users := writeUsers(t, "user default off", "user dashboard on >pen %R~job* +@read +@pubsub +@connection -@dangerous")
	s := simbatest.Start(t, "--aclfile", users)
	as := "redis://dashboard:pen@" + s.Addr
	run(t, as, "watch", "other").fails(t, 69, "NOPERM")
	run(t, as, "watch", "job*").fails(t, 69, "NOPERM")
	cmd := exec.Command(simbatest.Binary(t), "watch", "job")
	cmd.Env = append(simbatest.Environ(), "SIMBA_URL="+as)
	simbatest.RunCmd(t, cmd).Wants(t, "^# watching")
}
