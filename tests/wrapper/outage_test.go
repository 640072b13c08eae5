package wrapper

import (
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

const (
	outageTTL   = 3 * time.Second
	outageGrace = 8 * time.Second // the wrapper sends SIGKILL 2 s before its end
)

// justRenewed waits until shortly after a renewal, and returns the earliest end of the lease. The
// next renewal is not due for a good part of a second.
func (w *world) justRenewed() (end time.Duration) {
	w.Helper()
	c := simbatest.Conn(w, w.server)
	const lease = outageTTL + outageGrace
	for until := time.Now().Add(simbatest.Patience); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		asked := tenures.Clock()
		left := time.Duration(simbatest.DoRecord(w, c, "SIMBA.OWNER", "job")["transition"].(int64)) * time.Millisecond
		if lease-left < 50*time.Millisecond && tenures.Clock()-asked < 50*time.Millisecond {
			return asked + left
		}
	}
	w.Fatal("the wrapper does not renew the lease")
	return 0
}

// All processes of the command must end before the lease, even if they ignore SIGTERM.
func TestKilledServerEndsTheCommandBeforeTheLeaseEnds(t *testing.T) {
	t.Parallel()
	for name, flags := range map[string][]string{
		"obeys SIGTERM":               nil,
		"ignores SIGTERM":             {"--stubborn"},
		"family":                      {"--family"},
		"family that ignores SIGTERM": {"--family", "--stubborn"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.lock(w.worker(flags...), "--ttl", outageTTL.String(), "--grace", outageGrace.String())
			pid, _ := w.started(p)
			end := w.justRenewed()
			w.server.Kill()
			select {
			case <-p.Exited():
			case <-time.After(end - tenures.Clock() + 50*time.Millisecond):
				// A command that still runs writes timestamps after the end.
			}
			if last := w.lastMoment(); last >= end {
				t.Fatalf("the command still ran %v after the end of the lease", last-end)
			} else {
				t.Logf("the command ended %v before the end of the lease", end-last)
			}
			w.wantsCode(p, exitLost)
			w.gone(pid)
			p.Wants(t, `^signal terminated`)
			p.Wants(t, `job: the lease was not renewed in its TTL window`)
		})
	}
}

// A frozen server keeps its connections open. When it continues, it grants the mutex to the next
// waiter. The wrapper's standard error is a full pipe that nobody reads.
func TestFullStandardErrorDoesNotKeepTheCommandAlive(t *testing.T) {
	w := newWorld(t)
	read, full, err := os.Pipe()
	simbatest.Must(t, err)
	defer read.Close()
	fd := int(full.Fd())
	simbatest.Must(t, unix.SetNonblock(fd, true))
	for err == nil {
		_, err = unix.Write(fd, make([]byte, 1<<12))
	}
	for err = nil; err == nil; {
		_, err = unix.Write(fd, []byte("x"))
	}
	simbatest.Must(t, unix.SetNonblock(fd, false))
	first := exec.Command(simbatest.Binary(t), slices.Concat(
		[]string{"lock", "--url", w.url(), "--ttl", "1s", "--grace", "2s", "job", "--"}, w.worker("--stubborn"))...)
	first.Env, first.Stderr = simbatest.Environ(), full
	ended := make(chan error, 1)
	simbatest.Must(t, simbatest.StartCmd(first, func() { ended <- first.Wait() }))
	full.Close()
	t.Cleanup(func() { _ = first.Process.Kill() })
	w.awaitMoments()
	next := w.lock(w.worker())
	w.awaitQueued(1)
	w.server.Pause()
	<-ended
	if got := first.ProcessState.ExitCode(); got != exitLost {
		t.Errorf("the wrapper exits with code %d, want %d", got, exitLost)
	}
	w.server.Resume()
	w.started(next)
	w.endsAsSecond(next)
}

func TestServerThatIsBackWithinTheLeaseIsNotNoticed(t *testing.T) {
	w := newWorld(t)
	p := w.lock(w.worker(), "--ttl", "20s", "--grace", "20s", "--id", "me")
	pid, token := w.started(p)
	w.server.Kill()
	w.server.Start()
	// The remaining time of the lease falls from reply to reply until the wrapper renews.
	c := simbatest.Conn(t, w.server)
	for before, renewed := int64(math.MaxInt64), false; !renewed; time.Sleep(10 * time.Millisecond) {
		owner := simbatest.DoRecord(t, c, "SIMBA.OWNER", "job")
		if owner["owner"] != "me" || owner["token"] != int64(token) {
			t.Fatalf("SIMBA.OWNER returns %v, want the wrapper with token %d", owner, token)
		}
		left := owner["transition"].(int64)
		before, renewed = left, left > before
	}
	if strings.Contains(p.Output(), "signal") {
		t.Errorf("the wrapper sent the command a signal:\n%s", p.Output())
	}
	p.Signal(unix.SIGUSR1)
	p.Wants(t, `^signal user defined signal 1`)
	p.Signal(unix.SIGTERM)
	w.wantsCode(p, 0)
	w.gone(pid)
}

// The lease ends while the wrapper is stopped. When it continues, it must kill the command at once,
// without a wait for a timer or the server.
func TestStoppedWrapperKillsTheCommandWhenItContinues(t *testing.T) {
	w := newWorld(t)
	p := w.lock(w.worker("--stubborn"), "--ttl", "1s", "--grace", "1s")
	pid, token := w.started(p)
	p.Pause()
	next := w.lock([]string{"true"})
	w.wantsCode(next, 0) // the lease of the first wrapper has ended
	if err := unix.Kill(pid, 0); err != nil {
		t.Fatalf("the command with token %d has ended already", token)
	}
	p.Resume()
	w.wantsCode(p, exitLost)
	w.gone(pid)
	p.Wants(t, `too late for SIGTERM`)
}
