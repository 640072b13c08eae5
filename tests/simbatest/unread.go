package simbatest

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"testing"
	"time"
)

// Unread is a server whose log goes to a pipe. The pipe is read only when the test reads Log.
type Unread struct {
	Cmd    *exec.Cmd
	Addr   string
	Dir    string // data directory
	Log    *bufio.Scanner
	Exited chan struct{} // closed when the server has ended

	out *os.File
}

// StartUnread starts a server, and reads its log until the server serves.
func StartUnread(t testing.TB, args ...string) *Unread {
	t.Helper()
	var ends [2]int // a blocking pipe, like that of a shell
	Must(t, syscall.Pipe2(ends[:], syscall.O_CLOEXEC))
	out, in := os.NewFile(uintptr(ends[0]), "log"), os.NewFile(uintptr(ends[1]), "log")
	t.Cleanup(func() { out.Close() })
	defer in.Close()
	u := &Unread{Dir: t.TempDir() + "/data", Log: bufio.NewScanner(out), Exited: make(chan struct{}), out: out}
	u.Cmd = exec.Command(Binary(t), append([]string{"--addr", "127.0.0.1:0", "--data-dir", u.Dir}, args...)...)
	u.Cmd.Env, u.Cmd.Stderr = Environ(), in
	err := StartCmd(u.Cmd, func() {
		defer close(u.Exited)
		_ = u.Cmd.Wait() // ProcessState has the result
	})
	Must(t, err)
	t.Cleanup(func() {
		_ = u.Cmd.Process.Kill()
		<-u.Exited
	})
	for ready := regexp.MustCompile(ready + `(\S+)`); u.Addr == ""; {
		if !u.Log.Scan() {
			t.Fatal("the server ended before it was ready")
		}
		if match := ready.FindStringSubmatch(u.Log.Text()); match != nil {
			u.Addr = match[1]
		}
	}
	return u
}

// CloseLog closes the pipe, as if the reader of the log had ended.
func (u *Unread) CloseLog() { u.out.Close() }

// Terminate sends SIGTERM, unless the server has ended.
func (u *Unread) Terminate() { _ = u.Cmd.Process.Signal(syscall.SIGTERM) }

// Ended waits until the server has ended, and returns its exit code.
func (u *Unread) Ended(t testing.TB) int {
	t.Helper()
	select {
	case <-u.Exited:
	case <-time.After(Patience):
		t.Fatalf("the server still runs after %v", Patience)
	}
	return u.Cmd.ProcessState.ExitCode()
}
