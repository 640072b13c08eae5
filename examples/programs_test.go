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

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// example is a program of this folder. Only one of its processes owns the mutex at a time.
type example struct {
	name    string
	owns    string                      // matches the line of a new owner; the group is the token
	works   string                      // matches the line that the owner prints when it works
	program func(t *testing.T) []string // returns the command without options, or skips the test
	noID    bool                        // the program has no --id
	millis  bool                        // its --ttl is in milliseconds, not a duration of Go
	prefix  string                      // comes before the value of --mutex in the mutex's name
	options []string                    // options besides --addr, --mutex, --id and --ttl
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
	{name: "go/registry", owns: acquired, works: working, program: goProgram("registry"), noID: true, prefix: "examples:", options: []string{"--pieces", "3600"}},
	{name: "nodejs", owns: `^Lock acquired\. Starting work with token (\d+)`, works: `^Doing some heavy work`, program: nodeWorker, millis: true},
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

// startAs starts the example like start, but launcher starts the program. launcher is a command
// such as unshare. If id is empty, the example chooses its id.
func (e example) startAs(t *testing.T, launcher []string, s *simbatest.Server, mutex, id string, ttl time.Duration) *simbatest.Process {
	t.Helper()
	args := append(slices.Clone(launcher), e.program(t)...)
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

// token waits until the process owns the mutex, and returns the token that it prints.
func (e example) token(t *testing.T, p *simbatest.Process) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(p.Wants(t, e.owns)[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// building is locked during a build, so that the next build can use the compiled packages.
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
	need.Program(t, "node", "nodejs")
	need.Program(t, "npm", "npm")
	dir, err := installWorker()
	if err != nil {
		need.Missing(t, "%v", err)
	}
	return []string{"node", filepath.Join(dir, "worker.js")}
}

// installWorker makes a copy of nodejs/ and installs its dependencies, only once. It returns the
// path of the copy.
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
		// Only Debian's Python can import Debian's redis-py, and another Python may come first in
		// PATH.
		var last error
		for _, python := range []string{"/usr/bin/python3", "python3"} {
			if last = exec.Command(python, "-c", "import redis").Run(); last == nil {
				return []string{python, "python/" + name}
			}
		}
		need.Missing(t, "no Python with redis-py: apt-get install python3-redis: %v", last)
		return nil
	}
}

func shellLeader(shell string) func(*testing.T) []string {
	return func(t *testing.T) []string {
		t.Helper()
		need.Program(t, shell, shell)
		need.Program(t, "redis-cli", "redis-tools")
		need.Program(t, "timeout", "coreutils")
		return []string{shell, "shell/leader.sh"}
	}
}
