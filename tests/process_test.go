package tests

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// patience bounds every wait for something that must happen. It is generous, for
// machines that do much else; no test takes that long when it passes.
const patience = simbatest.Patience

// process is a program that runs beside the test.
type process struct {
	cmd    *exec.Cmd
	out    lines         // what it writes, both streams
	exited chan struct{} // closed once it is gone and all that it wrote is in out
}

// run starts a program that is killed with the test at the latest.
func run(t testing.TB, name string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(name, args...), exited: make(chan struct{})}
	p.cmd.Env = cleanEnv()
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = p.cmd.Stdout
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.exited)
		p.out.readFrom(stdout)
		_ = p.cmd.Wait() // the tests look at ProcessState
	}()
	t.Cleanup(p.kill)
	return p
}

// cleanEnv is the environment without settings of the server. FAKETTY makes
// redis-cli write as it does to a terminal; a server that has a data race ends at
// once, so that no test takes it for sound.
func cleanEnv() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SIMBA_") })
	return append(env, "FAKETTY=1", "GORACE=halt_on_error=1 atexit_sleep_ms=0")
}

// kill ends the process as a crash would, and returns once it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it is gone already
	<-p.exited
}

// signal sends sig to the process.
func (p *process) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// wait returns the exit code, or fails when the process goes on.
func (p *process) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatalf("%v does not exit:\n%s", p.cmd, p.out.String())
	}
	return p.cmd.ProcessState.ExitCode()
}

// wants returns the submatches of the first line, written already or to come, that
// matches the pattern.
func (p *process) wants(t testing.TB, pattern string) []string {
	t.Helper()
	found := p.out.next(regexp.MustCompile(pattern))
	select {
	case match := <-found:
		return match
	case <-p.exited:
		select {
		case match := <-found:
			return match
		default:
			t.Fatalf("%v ended without a line like %s:\n%s", p.cmd, pattern, p.out.String())
		}
	case <-time.After(patience):
		t.Fatalf("%v writes no line like %s:\n%s", p.cmd, pattern, p.out.String())
	}
	return nil
}

// output runs a program to its end and returns what it wrote.
func output(t testing.TB, name string, args ...string) string {
	t.Helper()
	p := run(t, name, args...)
	p.wait(t)
	return p.out.String()
}

// lines collects what a process writes.
type lines struct {
	mu    sync.Mutex // guards what follows
	text  bytes.Buffer
	wants []want
}

type want struct {
	pattern *regexp.Regexp
	found   chan []string
}

// next returns a channel that gets the submatches of the first line, of those
// written already and of those to come, that matches pattern.
func (l *lines) next(pattern *regexp.Regexp) <-chan []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make(chan []string, 1)
	for line := range strings.Lines(l.text.String()) {
		if match := pattern.FindStringSubmatch(strings.TrimSuffix(line, "\n")); match != nil {
			found <- match
			return found
		}
	}
	l.wants = append(l.wants, want{pattern, found})
	return found
}

func (l *lines) readFrom(r io.Reader) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		l.add(line)
		if err != nil {
			return // the process closed its end, mostly by exiting
		}
	}
}

func (l *lines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.WriteString(line)
	l.wants = slices.DeleteFunc(l.wants, func(w want) bool {
		match := w.pattern.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if match != nil {
			w.found <- match
		}
		return match != nil
	})
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
