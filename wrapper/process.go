package wrapper

import (
	"errors"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// process is a running command: a process group, whose leader is the first process.
//
// This program starts no other children. So wait may reap any child that ends. On Linux these
// include orphans of the command: see adoptOrphans.
type process struct {
	pid     int                 // of the leader, and of the group
	stopped chan syscall.Signal // gets the signal that has stopped the leader
	ended   chan struct{}       // closed when the leader has ended; status is set before
	status  unix.WaitStatus
}

// shell runs scripts without "#!".
const shell = "/bin/sh"

// start starts the command in a process group, which is in the foreground if tty is not nil.
func start(c Command, env []string, tty *terminal) (*process, error) {
	p := &process{stopped: make(chan syscall.Signal, 1), ended: make(chan struct{})}
	sys := &syscall.SysProcAttr{Setpgid: true}
	if tty != nil {
		sys.Foreground, sys.Ctty = true, tty.fd
	}
	dieWithThread(sys)
	adoptOrphans()
	started := make(chan error)
	// The kernel kills the leader when the thread that started it ends. So this goroutine keeps its
	// thread until the leader has ended.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var err error
		attr := &syscall.ProcAttr{Env: env, Files: []uintptr{0, 1, 2}, Sys: sys}
		if p.pid, err = syscall.ForkExec(c.path, c.args, attr); errors.Is(err, unix.ENOEXEC) {
			// A script without "#!": execvp(3) runs it by the shell.
			p.pid, err = syscall.ForkExec(shell, slices.Concat([]string{shell, c.path}, c.args[1:]), attr)
		}
		started <- err
		if err == nil {
			p.wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, &StartError{c.args[0], err}
	}
	return p, nil
}

// wait waits until the leader has ended.
func (p *process) wait() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			panic("wrapper: the command is not a child: " + err.Error())
		case pid != p.pid:
		case status.Stopped():
			select {
			case p.stopped <- status.StopSignal():
			default: // the last stop was not handled yet
			}
		default:
			p.status = status
			close(p.ended)
			return
		}
	}
}

// empty reports whether no process of the group is left. The caller calls it after the end of the
// leader. empty reaps adopted orphans first. A zombie that its parent does not reap still counts.
func (p *process) empty() bool {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		if pid <= 0 && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return errors.Is(unix.Kill(-p.pid, 0), unix.ESRCH)
}

// signal sends a signal to all processes of the group.
func (p *process) signal(sig syscall.Signal) error { return unix.Kill(-p.pid, sig) }

// code returns the exit code of the leader; 128+n if signal n has ended it.
func (p *process) code() int {
	if p.status.Signaled() {
		return signalCode(p.status.Signal())
	}
	return p.status.ExitStatus()
}

func signalCode(sig syscall.Signal) int { return 128 + int(sig) }
