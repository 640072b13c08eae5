package protocol

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// units are those of Redis' suite that are run. The others are about what this server does not have, or start
// servers of their own: the suite leaves those out for any server that it has not started (unit/auth, unit/acl).
var units = []string{"protocol", "quit", "pubsub", "multi", "type/string", "type/incr", "expire", "info-command"}

// tags are kinds of tests that are left out for both servers: those that look into Redis with DEBUG (which this
// server does not have: who may send commands may not therefore crash or stop the process), those with replicas,
// those that fill Redis' memory, and long ones.
const tags = "-needs:debug -needs:repl -needs:config-maxmemory -slow"

// long sets ten thousand keys, one after the other.
const long = "SETNX against expired volatile key"

// TestRedisOwnSuitePasses runs the suite against this server, and as a control against Redis itself.
func TestRedisOwnSuitePasses(t *testing.T) {
	dir := suite(t)
	redis := runTwice(t, dir, stores.Redis(t, "--appendonly", "no").Addr, long)
	redis.mustPass(t, "redis-server")
	checkExceptions(t, redis)

	server := simbatest.Start(t, "--durability", "memory")
	if got, err := ask(server.Addr, "CONFIG SET flush-held-locks yes"); err != nil || got != "+OK\r\n" {
		t.Fatalf("%q, %v", got, err) // the suite flushes what the test before has left
	}
	ours := runTwice(t, dir, server.Addr, append(exceptionPatterns(), long)...)
	ours.mustPass(t, "simba-resp")
	for _, name := range redis.passed {
		if !slices.Contains(ours.passed, name) && excepted(name) == "" {
			t.Errorf("%s: passed by Redis, not run by simba-resp", name)
		}
	}
	for _, name := range ours.skipped {
		t.Logf("not run: %s: %s", name, excepted(name))
	}
}

// verdicts are the tests of a run, by name.
type verdicts struct {
	passed, failed, skipped []string
	output                  string
}

// mustPass fails the test unless everything that ran has passed, and something did.
func (v *verdicts) mustPass(t *testing.T, server string) {
	t.Helper()
	t.Logf("%s: %d passed, %d failed, %d skipped", server, len(v.passed), len(v.failed), len(v.skipped))
	for _, name := range v.passed {
		t.Logf("passed: %s", name)
	}
	for _, name := range v.failed {
		t.Errorf("%s: failed: %s", server, name)
	}
	if t.Failed() || len(v.passed) < 20 {
		t.Fatalf("%s does not pass:\n%s", server, v.output)
	}
}

// A verdict is on a line of its own: "[ok]: PING (3 ms)", "[err]: PING in tests/unit/quit.tcl".
var verdict = regexp.MustCompile(`(?m)^\[(ok|err|skip)\]: (.*?)(?: \(\d+ ms\)| in tests/unit/\S+)?$`)

// limit bounds a run; the suite itself gives up a test that is stuck.
const limit = 4 * time.Minute

// runTwice is run, and runs those tests again by themselves that have failed: some of them expect an expiry, or a
// reply, within milliseconds, and fail on a busy machine. One that fails twice has failed.
func runTwice(t *testing.T, dir, addr string, without ...string) *verdicts {
	t.Helper()
	first := run(t, dir, addr, nil, without...)
	if len(first.failed) == 0 {
		return first
	}
	t.Logf("once more, since they failed: %q", first.failed)
	again := run(t, dir, addr, first.failed, without...)
	first.failed = slices.DeleteFunc(first.failed, func(name string) bool {
		return slices.Contains(again.passed, name) && !slices.Contains(again.failed, name)
	})
	first.passed = append(first.passed, again.passed...)
	first.output += "\n" + again.output
	return first
}

// run runs the units against the server at addr, only the tests of those names (nil = all) and without those of
// these; "/…" is a regular expression.
func run(t *testing.T, dir, addr string, only []string, without ...string) *verdicts {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	skips := filepath.Join(t.TempDir(), "skips")
	if err := os.WriteFile(skips, []byte(strings.Join(without, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	// Durable: one that fails does not end the run.
	args := []string{"tests/test_helper.tcl", "--host", host, "--port", port, "--clients", "1", "--durable", "--singledb",
		"--ignore-encoding", "--tags", tags, "--timeout", "60", "--skipfile", skips}
	for _, unit := range units {
		args = append(args, "--single", "unit/"+unit)
	}
	for _, name := range only {
		args = append(args, "--only", name)
	}
	cmd := exec.Command("tclsh", args...)
	cmd.Dir = dir
	cmd.Env = append(simbatest.Environ(), "TERM=dumb")
	p := simbatest.RunCmd(t, cmd)
	select {
	case <-p.Exited():
	case <-time.After(limit):
		t.Fatalf("the suite does not end:\n%s", p.Output())
	}
	v := &verdicts{output: p.Output()}
	tests, _, _ := strings.Cut(v.output, "The following tests failed:") // there they are named again
	for _, m := range verdict.FindAllStringSubmatch(tests, -1) {
		switch m[1] {
		case "ok":
			v.passed = append(v.passed, m[2])
		case "err":
			v.failed = append(v.failed, m[2])
		case "skip":
			v.skipped = append(v.skipped, m[2])
		}
	}
	if !strings.Contains(v.output, "The End") {
		t.Fatalf("the suite broke off:\n%s", v.output)
	}
	return v
}

// ask sends an inline command and returns the first line of the reply.
func ask(addr, command string) (string, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(simbatest.Patience))
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return "", err
	}
	reply := make([]byte, 1024)
	n, err := c.Read(reply)
	return string(reply[:n]), err
}
