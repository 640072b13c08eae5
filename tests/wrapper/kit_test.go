// Package wrapper tests lock and elect with real servers and commands. A command writes timestamps
// while it runs. The tests judge by these timestamps, so a slow test cannot hide an overlap.
package wrapper

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) {
	// If the tests run under nohup(1), SIGHUP is ignored, and the commands would inherit this.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	os.Exit(simbatest.Main(m))
}

// The exit codes that docs/reference/cli.md promises.
const (
	exitUsage       = 2
	exitUnavailable = 69
	exitConflict    = 75
	exitLost        = 76
)

// world is the server of a test, and the file to which its commands write timestamps.
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

// url returns the URL of the server.
func (w *world) url() string { return "redis://" + w.server.Addr }

// worker returns the command line of a worker: see worker/main.go.
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

// started waits for the first line of a worker, and returns its pid and its token.
func (w *world) started(p *simbatest.Process) (pid, token int) {
	w.Helper()
	match := p.Wants(w, `^started (\d+) token (\d+) of job`)
	return atoi(match[1]), atoi(match[2])
}

func atoi(s string) (n int) {
	_, _ = fmt.Sscan(s, &n)
	return n
}

// span is the time in which the commands of a tenure have run.
type span struct {
	token       int
	first, last time.Duration // by the monotonic clock
}

// spans returns the spans in the file, sorted by token.
func (w *world) spans() (all []span) {
	w.Helper()
	text, err := os.ReadFile(w.file)
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var at, token, pid int
		if n, _ := fmt.Sscan(line, &at, &token, &pid); n != 3 {
			w.Fatalf("the file has the line %q", line)
		}
		i, ok := slices.BinarySearchFunc(all, token, func(s span, token int) int { return s.token - token })
		if !ok {
			all = slices.Insert(all, i, span{token, time.Duration(at), time.Duration(at)})
		}
		all[i].first = min(all[i].first, time.Duration(at))
		all[i].last = max(all[i].last, time.Duration(at))
	}
	return all
}

// neverTwo fails the test if commands of two tenures have run at the same time. It returns the
// number of tenures.
func (w *world) neverTwo() int {
	w.Helper()
	all := w.spans()
	for i := 1; i < len(all); i++ {
		if overlap := all[i-1].last - all[i].first; overlap >= 0 {
			w.Errorf("the command with token %d still ran for %v after the command with token %d had started", all[i-1].token, overlap, all[i].token)
		}
	}
	return len(all)
}

// lastMoment returns the last timestamp of any command.
func (w *world) lastMoment() time.Duration {
	w.Helper()
	all := w.spans()
	return all[len(all)-1].last
}

func monotonic() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// awaitQueued waits until exactly want contenders are in the queue.
func (w *world) awaitQueued(want int) {
	w.Helper()
	c := simbatest.Conn(w, w.server)
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		queue, err := redis.Values(c.Do("SIMBA.QUEUE", "job"))
		if err != nil {
			w.Fatal(err)
		}
		if len(queue) == want {
			return
		}
	}
	w.Fatalf("the queue never has exactly %d contenders", want)
}

// gone waits until no process has the given id.
func (w *world) gone(pid int) {
	w.Helper()
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if unix.Kill(pid, 0) == unix.ESRCH {
			return
		}
	}
	w.Fatalf("process %d still runs", pid)
}

// wantsCode waits for the end of a wrapper, and checks its exit code.
func (w *world) wantsCode(p *simbatest.Process, want int) {
	w.Helper()
	if got := p.Wait(w); got != want {
		w.Errorf("exit code %d, want %d:\n%s", got, want, p.Output())
	}
}
