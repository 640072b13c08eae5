package wrapper

import (
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func (w *world) elect(command []string, flags ...string) *simbatest.Process {
	w.Helper()
	return w.run("elect", command, flags...)
}

func TestElectRunsTheCommandInEachTenure(t *testing.T) {
	w := newWorld(t)
	p := w.elect(w.worker(), "--id", "me", "--ttl", "12h")
	_, token := w.started(p)
	_, line := p.WantsAfter(t, 0, "^started")
	c := simbatest.Conn(t, w.server)
	simbatest.DoOne(t, c, "SIMBA.BREAK", "job")
	p.Wants(t, "^signal terminated")
	match, _ := p.WantsAfter(t, line, `^started \d+ token (\d+)`)
	if again := atoi(match[1]); again <= token {
		t.Errorf("the second command has the token %d, want more than %d, the first one", again, token)
	}
	p.Signal(unix.SIGTERM)
	w.wantsCode(p, 0)
	if n := w.neverTwo(); n != 2 {
		t.Errorf("%d commands ran, want 2", n)
	}
	w.wantsCode(w.lock(sh("true"), "--try"), 0)
}

func TestElectEndsWithTheCommand(t *testing.T) {
	w := newWorld(t)
	w.wantsCode(w.elect(sh("exit 7")), 7)
	w.wantsCode(w.elect(sh("true")), 0)
	w.wantsCode(w.elect([]string{"no-such-command"}), 127)
	w.wantsCode(w.lock(sh("true"), "--try"), 0)
}

// On SIGHUP, many programs read their settings again. So elect must not end on SIGHUP.
func TestElectThatGotSIGHUPReportsThatTheMutexWasLostLater(t *testing.T) {
	w := newWorld(t)
	p := w.elect(sh(`trap "echo hup" HUP; trap "exit 0" TERM; echo started; while :; do sleep 0.02; done`))
	p.Wants(t, "^started")
	p.Signal(unix.SIGHUP)
	p.Wants(t, "^hup")
	simbatest.DoOne(t, simbatest.Conn(t, w.server), "SIMBA.BREAK", "job")
	w.wantsCode(p, exitLost)
	p.Wants(t, "the mutex was lost while the command ran")
}

func TestElectRestartsTheCommand(t *testing.T) {
	w := newWorld(t)
	runs := filepath.Join(t.TempDir(), "runs")
	p := w.elect(sh(`echo >> `+runs+`; [ $(wc -l < `+runs+`) -lt 3 ] || sleep 600; exit 7`), "--restart")
	var token, line int
	for run := range 3 {
		var match []string
		match, line = p.WantsAfter(t, line, `job: acquired, token (\d+)`)
		if next := atoi(match[1]); next <= token {
			t.Errorf("tenure %d has token %d, want one above %d", run+1, next, token)
		} else {
			token = next
		}
		if run < 2 {
			_, line = p.WantsAfter(t, line, "job: the command has ended with exit code 7")
		}
	}
	p.Signal(unix.SIGTERM)
	w.wantsCode(p, 128+15)
}

// elect --restart must let a waiter run its command before it restarts its own.
func TestElectReleasesTheMutexBeforeItRestartsTheCommand(t *testing.T) {
	w := newWorld(t)
	first := w.elect(sh("read line"), "--restart") // read fails at once: stdin is empty
	first.Wants(t, "contending again")
	second := w.elect(w.worker())
	w.started(second)
	first.Signal(unix.SIGTERM)
	second.Signal(unix.SIGTERM)
	w.wantsCode(first, 128+15)
	w.wantsCode(second, 0)
}

// In each round the test kills the wrapper, the command or its process group. By their timestamps,
// no two commands may ever run at once.
func TestCrashesOfTwoWrappersNeverRunTwoCommandsAtOnce(t *testing.T) {
	w := newWorld(t)
	flags := []string{"--ttl", "1s", "--grace", "4s"}
	start := func() *simbatest.Process { return w.lock(w.worker("--family", "--stubborn"), flags...) }
	owner := start()
	pid, _ := w.started(owner)
	rounds := simbatest.Count(6, 60)
	for round := range rounds {
		next := start()
		w.awaitQueued(1)
		time.Sleep(rand.N(400 * time.Millisecond)) // any moment between two renewals
		// A killed wrapper cannot end the processes of the group. So the test kills them, as a
		// supervisor does that kills a whole unit.
		switch round % 3 {
		case 0:
			_ = unix.Kill(owner.Pid(), unix.SIGKILL)
			w.gone(pid)
			_ = unix.Kill(-pid, unix.SIGKILL)
		case 1:
			_ = unix.Kill(pid, unix.SIGKILL)
		case 2:
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
		<-owner.Exited()
		owner = next
		pid, _ = w.started(owner)
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	w.wantsCode(owner, 128+9)
	if n := w.neverTwo(); n != rounds+1 {
		t.Errorf("%d commands ran, want %d", n, rounds+1)
	}
}
