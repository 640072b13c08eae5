// Package wrapper tests lock and elect with real servers and commands. A command writes timestamps
// to a file while it runs. The tests compare only these timestamps, so a slow test cannot hide an
// overlap.
package wrapper

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
	"github.com/simba-resp/simba-resp/tests/tenures"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// Exit codes, as promised by docs/reference/cli.md.
const (
	exitUsage       = 2
	exitUnavailable = 69
	exitConflict    = 75
	exitLost        = 76
)

// world is the server of a test, and the file for the timestamps of its commands.
type world struct {
	testing.TB
	server *simbatest.Server
	file   string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return &world{t, simbatest.Start(t), t.TempDir() + "/moments"}
}

func (w *world) url() string { return "redis://" + w.server.Addr }

// worker returns the command line of the program worker/main.go.
func (w *world) worker(flags ...string) []string {
	w.Helper()
	return append([]string{simbatest.Build(w, "tests/wrapper/worker"), "--file", w.file}, flags...)
}

// lock starts `simba-resp lock flags job -- command`.
func (w *world) lock(command []string, flags ...string) *simbatest.Process {
	w.Helper()
	return w.run("lock", command, flags...)
}

func (w *world) run(verb string, command []string, flags ...string) *simbatest.Process {
	w.Helper()
	args := slices.Concat([]string{verb, "--url", w.url()}, flags, []string{"job", "--"}, command)
	return simbatest.Run(w, simbatest.Binary(w), args...)
}

// started waits for the first line of a worker, and returns its pid and token.
func (w *world) started(p *simbatest.Process) (pid, token int) {
	w.Helper()
	match := p.Wants(w, `^started (\d+) token (\d+) of job`)
	return atoi(match[1]), atoi(match[2])
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// neverTwo fails the test if commands of two tenures ran at the same time. It returns the number of
// tenures.
func (w *world) neverTwo() int {
	w.Helper()
	all := tenures.Moments(w, w.file)
	for _, wrong := range tenures.Overlaps(all) {
		w.Error(wrong)
	}
	return len(all)
}

// endsAsSecond ends the command of next, and checks that it was the second one and ran alone.
func (w *world) endsAsSecond(next *simbatest.Process) {
	w.Helper()
	next.Signal(unix.SIGTERM)
	w.wantsCode(next, 0)
	if n := w.neverTwo(); n != 2 {
		w.Errorf("%d commands ran, want 2", n)
	}
}

// lastMoment returns the last timestamp of all commands.
func (w *world) lastMoment() time.Duration {
	w.Helper()
	all := tenures.Moments(w, w.file)
	return all[len(all)-1].To
}

func (w *world) awaitQueued(want int) {
	w.Helper()
	c := simbatest.Conn(w, w.server)
	simbatest.Await(w, fmt.Sprintf("the queue has exactly %d contenders", want), func() bool {
		queue, err := redis.Values(c.Do("SIMBA.QUEUE", "job"))
		simbatest.Must(w, err)
		return len(queue) == want
	})
}

// gone waits until no process has the id.
func (w *world) gone(pid int) {
	w.Helper()
	simbatest.Await(w, fmt.Sprintf("process %d has ended", pid), func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
}

// wantsCode waits for the end of a wrapper, and checks its exit code.
func (w *world) wantsCode(p *simbatest.Process, want int) {
	w.Helper()
	if got := p.Wait(w); got != want {
		w.Errorf("the wrapper exits with code %d, want %d:\n%s", got, want, p.Output())
	}
}
