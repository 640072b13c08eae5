package stores

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

// readyTimeout is how long a store may take to answer after its start, on a slow machine.
const readyTimeout = need.Hang

// Server is one process of a store.
type Server struct {
	Addr string // host:port; a restart keeps it
	Dir  string // holds the server's data, and its output in the file "log"

	t       TB
	program string
	args    []string
	ready   func() error        // returns nil when the server answers
	as      *syscall.Credential // nil = the test's user
	// forks says that the server has a process for each connection. They are paused and killed with
	// it, and SIGINT stops it without waiting for them.
	forks bool

	mu   sync.Mutex // guards the fields below, which each Start sets
	proc *process
}

func start(t TB, s *Server) *Server {
	t.Helper()
	s.t = t
	t.Cleanup(s.Kill)
	s.Start()
	return s
}

// startAll starts the servers of a cluster. None of them answers before most of them are running.
func startAll(t TB, servers []*Server) {
	t.Helper()
	for _, s := range servers {
		s.t = t
		t.Cleanup(s.Kill)
		if _, err := s.launch(nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range servers {
		s.Start()
	}
}

// Start starts the server, or restarts it with the same port and data. It returns when the server
// answers, or fails the test. If the server is running, Start does not start another process.
func (s *Server) Start() { s.StartWith() }

// StartWith is Start with additional arguments, which apply until the server ends.
func (s *Server) StartWith(args ...string) {
	s.t.Helper()
	p, err := s.launch(args)
	if err == nil {
		err = s.awaitReady(p)
	}
	if err != nil {
		s.t.Fatalf("start %s on %s: %v\n%s", filepath.Base(s.program), s.Addr, err, tail(s.Log(), 30))
	}
}

func (s *Server) launch(args []string) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.hasEnded() {
		return s.proc, nil
	}
	p, err := run(s.program, slices.Concat(s.args, args), s.Dir, s.as)
	if err == nil {
		s.proc = p
	}
	return p, err
}

func (s *Server) awaitReady(p *process) error {
	deadline := time.NewTimer(readyTimeout)
	defer deadline.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := s.ready()
		if err == nil {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("the program ended: %v", p.cmd.ProcessState)
		case <-deadline.C:
			return fmt.Errorf("the server does not answer: %w", err)
		case <-again.C:
		}
	}
}

// Stop stops the server with SIGTERM and waits for its end.
func (s *Server) Stop() {
	if s.forks {
		s.end(syscall.SIGINT)
		return
	}
	s.end(syscall.SIGTERM)
}

// Kill kills the server with SIGKILL, as in a crash, and waits for its end.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Pause freezes the server until Resume. Its connections stay open, but it answers nothing.
func (s *Server) Pause() {
	if p := s.current(); p != nil {
		Freeze(p.cmd.Process)
		s.signalForks(p, syscall.SIGSTOP)
	}
}

// Resume continues a paused server.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

// Log returns the server's output so far.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.Dir, "log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Pid returns the process id of the current or the last run.
func (s *Server) Pid() int { return s.current().cmd.Process.Pid }

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) signal(sig syscall.Signal) {
	if p := s.current(); p != nil {
		p.signal(sig)
		s.signalForks(p, sig)
	}
}

// signalForks sends a signal to the processes of a server's connections, on Linux. It returns them.
func (s *Server) signalForks(p *process, sig syscall.Signal) (forks []string) {
	if !s.forks {
		return nil
	}
	pid := strconv.Itoa(p.cmd.Process.Pid)
	list, _ := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
	forks = strings.Fields(string(list))
	for _, fork := range forks {
		if n, err := strconv.Atoi(fork); err == nil {
			_ = syscall.Kill(n, sig) // fails if it has ended
		}
	}
	return forks
}

// awaitEnd waits until a process has ended, as a zombie or without a trace.
func awaitEnd(pid string) {
	for end := time.Now().Add(readyTimeout); time.Now().Before(end); time.Sleep(time.Millisecond) {
		status, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if _, state, _ := strings.Cut(string(status), ") "); err != nil || strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") {
			return
		}
	}
}

func (s *Server) end(sig syscall.Signal) {
	p := s.current()
	if p == nil {
		return
	}
	if sig == syscall.SIGKILL && s.forks && !p.hasEnded() {
		Freeze(p.cmd.Process) // so that it forks no more
		forks := s.signalForks(p, sig)
		defer func() {
			for _, fork := range forks {
				awaitEnd(fork)
			}
		}()
	}
	p.signal(sig)
	if sig != syscall.SIGKILL {
		s.signal(syscall.SIGCONT) // a frozen process cannot end
		select {
		case <-p.ended:
			return
		case <-time.After(readyTimeout):
			p.signal(syscall.SIGKILL)
		}
	}
	<-p.ended
}

type process struct {
	cmd   *exec.Cmd
	ended chan struct{}
	err   error // the result of cmd.Wait; valid after ended is closed
}

const memory = "/dev/shm"

// Scratch returns a folder for a store's data until the test ends. The folder is in memory if
// possible, since a store on a busy disk answers late. If t has a method StoreDir, Scratch returns
// its result.
func Scratch(t TB) string {
	t.Helper()
	if own, ok := t.(interface{ StoreDir() string }); ok {
		return own.StoreDir()
	}
	dir, err := os.MkdirTemp(memory, "simba-store-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// run starts a program in a folder, with its output in the file "log" there. The kernel kills the
// program when the thread that started it ends. So one goroutine starts the program and stays
// locked to its thread until the program ends.
func run(program string, args []string, dir string, as *syscall.Credential) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.SysProcAttr = DieWithParent()
	if as != nil {
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = new(syscall.SysProcAttr)
		}
		cmd.SysProcAttr.Credential = as
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.ended)
		}
	}()
	return p, <-started
}

func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

func (p *process) signal(sig syscall.Signal) {
	_ = p.cmd.Process.Signal(sig) // fails if the process has ended
}

// answers returns nil if the server's reply to a request contains one of the wanted texts.
func answers(addr, request string, want ...string) error {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte(request)); err != nil {
		return err
	}
	got := make([]byte, 4096)
	n := 0
	for n < len(got) {
		k, err := c.Read(got[n:])
		n += k
		for _, w := range want {
			if strings.Contains(string(got[:n]), w) {
				return nil
			}
		}
		if err != nil || strings.HasSuffix(string(got[:n]), "\r\n") {
			break
		}
	}
	return fmt.Errorf("%s says %q", addr, got[:n])
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
