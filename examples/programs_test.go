package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// example is a program of this folder. One process of it at a time owns the mutex.
type example struct {
	name    string
	owns    string                      // matches its line when it owns the mutex, and the token
	works   string                      // matches its line when it works
	program func(t *testing.T) []string // and its first arguments; skips the test if it cannot run
	noID    bool                        // it has no --id
	millis  bool                        // its --ttl is in milliseconds, not a duration of Go
	prefix  string                      // of the mutex, before its --mutex
	options []string                    // besides --addr, --mutex, --id and --ttl
}

const (
	acquired = `^acquired, token (\d+)$`
	working  = `^working$`
)

var examples = []example{
	{name: "go/contend", owns: acquired, works: working, program: goProgram("contend")},
	{name: "go/lock", owns: acquired, works: working, program: goProgram("lock"), noID: true, options: []string{"--work", "1h"}},
	{name: "go/schedule", owns: acquired, works: working, program: goProgram("schedule")},
	{name: "go/worker", owns: acquired, works: working, program: goProgram("worker")},
	{name: "go/registry", owns: acquired, works: working, program: goProgram("registry"), prefix: "examples:", options: []string{"--pieces", "3600"}},
	{name: "nodejs", owns: `^Lock acquired\. Starting work .*token: (\d+)`, works: `^Doing some heavy work`, program: nodeWorker, millis: true},
	{name: "python", owns: acquired, works: working, program: pythonProgram("leader.py"), millis: true},
	{name: "python/lock", owns: acquired, works: working, program: pythonProgram("lock.py"), millis: true, options: []string{"--pieces", "3600"}},
	{name: "shell/sh", owns: acquired, works: working, program: shellLeader("sh"), millis: true},
	{name: "shell/bash", owns: acquired, works: working, program: shellLeader("bash"), millis: true},
}

// start runs the example against a server.
func (e example) start(t *testing.T, s *simbatest.Server, mutex, id string, ttl time.Duration) *simbatest.Process {
	t.Helper()
	return e.startAs(t, nil, s, mutex, id, ttl)
}

// startAs is start by a command that runs another. Without an id the example chooses one.
func (e example) startAs(t *testing.T, by []string, s *simbatest.Server, mutex, id string, ttl time.Duration) *simbatest.Process {
	t.Helper()
	args := append(slices.Clone(by), e.program(t)...)
	args = append(args, "--addr", s.Addr, "--mutex", mutex)
	if !e.noID && id != "" {
		args = append(args, "--id", id)
	}
	if e.millis {
		args = append(args, "--ttl", strconv.FormatInt(ttl.Milliseconds(), 10))
	} else {
		args = append(args, "--ttl", ttl.String())
	}
	args = append(args, e.options...)
	return simbatest.Run(t, args[0], args[1:]...)
}

// token waits until it owns the mutex, and returns its token.
func (e example) token(t *testing.T, p *simbatest.Process) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(p.Wants(t, e.owns)[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// building is held during a build, so that the next one finds the common packages compiled.
var building sync.Mutex

func goProgram(name string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		building.Lock()
		defer building.Unlock()
		return []string{simbatest.Build(t, "examples/go/"+name)}
	}
}

func nodeWorker(t *testing.T) []string {
	t.Helper()
	for _, tool := range []string{"node", "npm"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, err)
		}
	}
	dir, err := installWorker()
	if err != nil {
		missing(t, err)
	}
	return []string{"node", filepath.Join(dir, "worker.js")}
}

// installWorker makes a copy of nodejs/ with what it depends on, once, and returns where it is.
var installWorker = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs(filepath.Join(scratch, "nodejs"))
	if err != nil {
		return "", err
	}
	if err := os.CopyFS(dir, os.DirFS("nodejs")); err != nil {
		return "", err
	}
	npm := exec.Command("npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return dir, nil
})

func pythonProgram(name string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		// Debian's redis-py is for Debian's Python, which need not be the first on the path.
		var last error
		for _, python := range []string{"/usr/bin/python3", "python3"} {
			if last = exec.Command(python, "-c", "import redis").Run(); last == nil {
				return []string{python, "python/" + name}
			}
		}
		missing(t, fmt.Errorf("no Python with redis-py (apt-get install python3-redis): %w", last))
		return nil
	}
}

func shellLeader(shell string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		for _, tool := range []string{shell, "redis-cli", "timeout"} {
			if _, err := exec.LookPath(tool); err != nil {
				missing(t, err)
			}
		}
		return []string{shell, "shell/leader.sh"}
	}
}

// missing skips the test, since what it needs is not on this machine. Where CI runs it has to be.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(err)
	}
	t.Skip(err)
}
