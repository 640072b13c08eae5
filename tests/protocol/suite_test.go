package protocol

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }

// units are the units of the suite that run here. Other units test features that this server lacks,
// or start their own servers, which the suite does not do for an external server.
var units = []string{"protocol", "quit", "pubsub", "multi", "type/string", "type/incr", "expire", "info-command"}

// tags excludes tests that need DEBUG, replicas or a memory limit, and slow tests, with both
// servers. This server has no DEBUG, since that command could crash it.
const tags = "-needs:debug -needs:repl -needs:config-maxmemory -slow"

// long is the name of a slow test that lacks the tag slow. It sets ten thousand keys one by one.
const long = "SETNX against expired volatile key"

// The test first runs the suite against Redis, to show that the suite itself passes here.
func TestRedisOwnSuitePasses(t *testing.T) {
	dir := suite(t)
	redis := runTwice(t, dir, stores.Redis(t, "--appendonly", "no").Addr, long)
	redis.mustPass(t, "redis-server")
	checkExceptions(t, redis)

	server := simbatest.Start(t, "--durability", "memory")
	// Each test of the suite begins with FLUSHALL.
	if got, err := ask(server.Addr, "CONFIG SET flush-held-locks yes"); err != nil || got != "+OK\r\n" {
		t.Fatalf("CONFIG SET returns %q, %v, want OK", got, err)
	}
	ours := runTwice(t, dir, server.Addr, append(exceptionPatterns(), long)...)
	ours.mustPass(t, "simba-resp")
	for _, name := range redis.passed {
		if !slices.Contains(ours.passed, name) && excepted(name) == "" {
			t.Errorf("%s: Redis passes the test, but it did not run against simba-resp", name)
		}
	}
	for _, name := range ours.skipped {
		t.Logf("not run: %s: %s", name, excepted(name))
	}
}

type verdicts struct {
	passed, failed, skipped []string
	output                  string
}

// mustPass fails the test if a test of the suite failed, or fewer than 20 passed.
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

// verdict matches the line of a result: "[ok]: PING (3 ms)", "[err]: PING in tests/unit/quit.tcl".
var verdict = regexp.MustCompile(`(?m)^\[(ok|err|skip)\]: (.*?)(?: \(\d+ ms\)| in tests/unit/\S+)?$`)

// limit is the longest time of a run. The suite itself ends a stuck test earlier.
const limit = need.Hang

// runTwice calls run, and runs failed tests once more. Some tests of the suite expect an expiry or
// a reply within milliseconds, and fail on a busy machine.
func runTwice(t *testing.T, dir, addr string, without ...string) *verdicts {
	t.Helper()
	first := run(t, dir, addr, nil, without...)
	if len(first.failed) == 0 {
		return first
	}
	t.Logf("running failed tests again: %q", first.failed)
	again := run(t, dir, addr, first.failed, without...)
	first.failed = slices.DeleteFunc(first.failed, func(name string) bool {
		return slices.Contains(again.passed, name) && !slices.Contains(again.failed, name)
	})
	first.passed = append(first.passed, again.passed...)
	first.output += "\n" + again.output
	return first
}

// run runs the units against the server at addr. If only is not nil, it runs no other tests. It
// excludes the tests in without. A name that begins with "/" is a regular expression.
func run(t *testing.T, dir, addr string, only []string, without ...string) *verdicts {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	simbatest.Must(t, err)
	skips := filepath.Join(t.TempDir(), "skips")
	simbatest.Must(t, os.WriteFile(skips, []byte(strings.Join(without, "\n")), 0o600))
	args := []string{
		"tests/test_helper.tcl", "--host", host, "--port", port, "--clients", "1",
		"--durable", // continue after a failed test
		"--singledb", "--ignore-encoding", "--tags", tags, "--timeout", "60", "--skipfile", skips,
	}
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
	// At the end, the suite lists the failed tests again.
	tests, _, _ := strings.Cut(v.output, "The following tests failed:")
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
		t.Fatalf("the suite ended early:\n%s", v.output)
	}
	return v
}

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

// source is the path of Redis' source in the user's cache folder.
const source = "simba-resp/redis-7.0.15"

// functionFlush is a line of the suite that sends a command before each unit. This server does not
// have the command, so suite removes the line.
const functionFlush = "\n    r function flush\n"

// suite returns a folder with a copy of the suite, since the suite writes into its own folder.
func suite(t *testing.T) string {
	t.Helper()
	need.Program(t, "tclsh", "tcl")
	cache, err := os.UserCacheDir()
	simbatest.Must(t, err)
	tests := filepath.Join(cache, source, "tests")
	if _, err := os.Stat(filepath.Join(tests, "test_helper.tcl")); err != nil {
		need.Missing(t, "Redis' test suite is not in %s: run tools/install", tests)
	}

	dir := t.TempDir()
	simbatest.Must(t, os.CopyFS(filepath.Join(dir, "tests"), os.DirFS(tests)))
	support := filepath.Join(dir, "tests/support/server.tcl")
	text, err := os.ReadFile(support)
	simbatest.Must(t, err)
	if n := bytes.Count(text, []byte(functionFlush)); n != 1 {
		t.Fatalf("the suite has the line FUNCTION FLUSH %d times, want 1", n)
	}
	text = bytes.Replace(text, []byte(functionFlush), []byte("\n"), 1)
	simbatest.Must(t, os.WriteFile(support, text, 0o600))
	return dir
}
