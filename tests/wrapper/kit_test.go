// Package wrapper tests lock and elect with real servers and commands. A command writes timestamps
// to a file while it runs. The tests compare only these timestamps, so a slow test cannot hide an
// overlap.
package wrapper

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
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

// span is the time in which the commands of a tenure have run.
type span struct {
	token       int
	first, last time.Duration // by the monotonic clock
}

// spans returns the spans in the file, by ascending token.
func (w *world) spans() (all []span) {
	w.Helper()
	text, err := os.ReadFile(w.file)
	if err != nil {
		w.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var at, token, pid int
		if n, _ := fmt.Sscan(line, &at, &token, &pid); n != 3 {
			w.Fatalf("the file of timestamps has the line %q", line)
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

// neverTwo fails the test if commands of two tenures ran at the same time. It returns the number of
// tenures.
func (w *world) neverTwo() int {
	w.Helper()
	all := w.spans()
	for i := 1; i < len(all); i++ {
		if overlap := all[i-1].last - all[i].first; overlap >= 0 {
			w.Errorf("the command with token %d still ran %v after the start of the command with token %d", all[i-1].token, overlap, all[i].token)
		}
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

// await waits until done returns true.
func (w *world) await(what string, done func() bool) {
	w.Helper()
	for end := time.Now().Add(simbatest.Patience); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.Fatalf("this did not happen within %v: %s", simbatest.Patience, what)
		}
	}
}

func (w *world) awaitQueued(want int) {
	w.Helper()
	c := simbatest.Conn(w, w.server)
	w.await(fmt.Sprintf("the queue has exactly %d contenders", want), func() bool {
		queue, err := redis.Values(c.Do("SIMBA.QUEUE", "job"))
		if err != nil {
			w.Fatal(err)
		}
		return len(queue) == want
	})
}

// gone waits until no process has the id.
func (w *world) gone(pid int) {
	w.Helper()
	w.await(fmt.Sprintf("process %d has ended", pid), func() bool { return unix.Kill(pid, 0) == unix.ESRCH })
}

// wantsCode waits for the end of a wrapper, and checks its exit code.
func (w *world) wantsCode(p *simbatest.Process, want int) {
	w.Helper()
	if got := p.Wait(w); got != want {
		w.Errorf("the wrapper exits with code %d, want %d:\n%s", got, want, p.Output())
	}
}
