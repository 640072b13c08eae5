package dropin

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// nodeRounds is how often each of the three workers of a program acquires the mutex.
const nodeRounds = 10

// Two processes of a program in nodejs/ contend with two clients that use SIMBA.ACQUIRE. The program
// document.mjs has lock functions from a web page, redlock.mjs the npm package.
func TestNodeLocksContendWithSimbaAcquire(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"document.mjs", "redlock.mjs"} {
		t.Run(program, func(t *testing.T) { contendWithNode(t, program) })
	}
}

func contendWithNode(t *testing.T, program string) {
	t.Helper()
	dir := nodePrograms(t)
	c := newContest(t, "jobs")
	host, port, err := net.SplitHostPort(c.server.Addr)
	simbatest.Must(t, err)
	var all []*simbatest.Process
	for range 2 {
		all = append(all, simbatest.Run(t, "node", filepath.Join(dir, program), host, port, c.mutex, strconv.Itoa(nodeRounds)))
	}
	// These clients pause, because a waiter gets the mutex before a client that polls.
	c.enterSimba(2, 15, 40*time.Millisecond)
	tenures := 0
	for _, p := range all {
		if code := p.Wait(t); code != 0 {
			t.Errorf("%s exits with %d:\n%s", program, code, p.Output())
			continue
		}
		for line := range strings.Lines(p.Output()) {
			c.noted.add(nodeTenure(t, line))
			tenures++
		}
	}
	c.end()
	if tenures != 2*3*nodeRounds && !t.Failed() {
		t.Errorf("the workers had %d tenures, want one for each round", tenures)
	}
}

func nodeTenure(t *testing.T, line string) tenure {
	t.Helper()
	var n tenure
	if _, err := fmt.Sscan(line, &n.Owner, &n.Token, (*int64)(&n.From), (*int64)(&n.To)); err != nil {
		t.Fatalf("the program prints the line %q, which is no tenure: %v", line, err)
	}
	return n
}

// nodePrograms returns a folder with the installed programs. If it cannot install them, it skips
// the test, or fails it with CI=true.
func nodePrograms(t *testing.T) string {
	t.Helper()
	need.Program(t, "node", "nodejs")
	need.Program(t, "npm", "npm")
	dir, err := installNode()
	if err != nil {
		need.Missing(t, "%v", err)
	}
	return dir
}

// installNode copies nodejs/ into scratch and installs the dependencies there, once for all tests.
var installNode = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(scratch, "nodejs")
	if err := os.CopyFS(dir, os.DirFS("nodejs")); err != nil {
		return "", err
	}
	source, err := os.ReadFile(filepath.Join(dir, "lock.ts"))
	if err != nil {
		return "", err
	}
	untyped := strings.NewReplacer(": string", "", ": number", "", ": Promise<boolean>", "").Replace(string(source))
	if err := os.WriteFile(filepath.Join(dir, "lock.mjs"), []byte(untyped), 0o644); err != nil {
		return "", err
	}
	npm := exec.Command("npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci: %w\n%s", err, out)
	}
	return dir, nil
})
