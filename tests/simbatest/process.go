package simbatest

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// Patience limits each wait for something that must happen.
const Patience = need.Hang

// Process is a program that runs beside the test.
type Process struct {
	cmd    *exec.Cmd
	out    lines
	exited chan struct{} // closed when the process has ended and out has its whole output
}

// Run starts a program. If the program still runs when the test ends, Run kills it.
func Run(t stores.TB, program string, args ...string) *Process {
	t.Helper()
	return RunCmd(t, exec.Command(program, args...))
}

// Output runs a program until it exits, and returns its output.
func Output(t stores.TB, program string, args ...string) string {
	t.Helper()
	p := Run(t, program, args...)
	p.Wait(t)
	return p.Output()
}

// RunCmd works like Run, for a program that needs its own folder or environment. If cmd.Env is nil,
// the program gets Environ. RunCmd sets cmd.Stdout and cmd.Stderr.
func RunCmd(t stores.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := run(cmd)
	Must(t, err)
	t.Cleanup(p.Kill)
	return p
}

func run(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	if cmd.Env == nil {
		cmd.Env = Environ()
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	err = StartCmd(cmd, func() {
		p.out.readFrom(out)
		_ = cmd.Wait() // ProcessState has the result
		close(p.exited)
	})
	return p, err
}

// StartCmd starts cmd, and then calls wait in another goroutine. wait must call cmd.Wait. On Linux,
// the kernel kills the program if the process of the test dies. Of cmd.SysProcAttr, StartCmd keeps
// Setpgid only.
func StartCmd(cmd *exec.Cmd, wait func()) error {
	attr := stores.DieWithParent()
	attr.Setpgid = cmd.SysProcAttr != nil && cmd.SysProcAttr.Setpgid
	cmd.SysProcAttr = attr
	started := make(chan error)
	// The kernel kills the program when the thread that started it ends. So this goroutine keeps
	// its thread until the program has ended.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			wait()
		}
	}()
	return <-started
}

// Environ returns the test's environment without variables that configure a server. GORACE in it
// makes a program exit at its first data race, so that the test sees it.
func Environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SIMBA_") })
	return append(env, "GORACE=halt_on_error=1 atexit_sleep_ms=0")
}

func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Kill ends the process as a crash does (SIGKILL), and returns when it has ended.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if the process has ended
	<-p.exited
}

// Signal sends sig to the process. It does nothing if the process has ended.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// Pause freezes the process until Resume. Its connections stay open.
func (p *Process) Pause() { stores.Freeze(p.cmd.Process) }

// Resume ends a Pause.
func (p *Process) Resume() { p.Signal(syscall.SIGCONT) }

// Exited returns a channel that is closed when the process has ended and Output is complete.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait waits until the process has ended, and returns the exit code, or -1 if a signal ended the
// process. If this takes longer than Patience, the test fails.
func (p *Process) Wait(t stores.TB) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(Patience):
		t.Fatalf("%v has not exited after %v:\n%s", p.cmd, Patience, p.Output())
	}
	return p.cmd.ProcessState.ExitCode()
}

// Wants waits for the first line of output that matches the pattern, and returns its submatches.
// The line may be older than the call. If no line matches within Patience, the test fails.
func (p *Process) Wants(t stores.TB, pattern string) []string {
	t.Helper()
	match, _ := p.WantsAfter(t, 0, pattern)
	return match
}

// WantsAfter works like Wants, but begins at the given line, counted from 0. It also returns the
// number of the line after the match.
func (p *Process) WantsAfter(t stores.TB, line int, pattern string) (submatches []string, next int) {
	t.Helper()
	submatches, next, ended := p.find(line, regexp.MustCompile(pattern))
	switch {
	case ended:
		t.Fatalf("%v ended without a line like %s:\n%s", p.cmd, pattern, p.Output())
	case submatches == nil:
		t.Fatalf("%v writes no line like %s:\n%s", p.cmd, pattern, p.Output())
	}
	return submatches, next
}

// find waits for a line that matches, from the given number on. If the process ends before, ended
// is true. After Patience, submatches is nil.
func (p *Process) find(line int, re *regexp.Regexp) (submatches []string, next int, ended bool) {
	late := time.NewTimer(Patience)
	defer late.Stop()
	for {
		more := p.out.more()
		gone := false
		select {
		case <-p.exited:
			gone = true
		default:
		}
		for ; line < p.out.count(); line++ {
			if match := re.FindStringSubmatch(p.out.line(line)); match != nil {
				return match, line + 1, false
			}
		}
		if gone {
			return nil, line, true
		}
		select {
		case <-more:
		case <-p.exited:
		case <-late.C:
			return nil, line, false
		}
	}
}

// Lines returns the number of lines of output so far.
func (p *Process) Lines() int { return p.out.count() }

// Output returns what the process has written so far to stdout and stderr.
func (p *Process) Output() string { return p.out.String() }
