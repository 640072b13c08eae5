package simbatest

import (
	"net"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// Server is a simba-resp, the same through all its restarts. Its methods are for one goroutine
// at a time.
type Server struct {
	Addr    string // host:port
	Dir     string // data directory, of engine embedded
	Program string // path of the binary; "" = that of Binary

	t    stores.TB
	args []string
	proc *Process // the last; nil = never started
}

// New returns a server that does not run yet, on a free port and with a data directory of its own. The
// arguments are flags of the server and win over those.
func New(t stores.TB, args ...string) *Server {
	t.Helper()
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t))), Dir: t.TempDir() + "/data", t: t}
	s.args = append([]string{"--addr", s.Addr, "--data-dir", s.Dir}, args...)
	// Once, now: what the test makes later is cleaned up before the server is gone, however
	// often that was started in between.
	t.Cleanup(func() {
		if s.proc != nil {
			s.proc.Kill()
		}
	})
	return s
}

// Start returns a New server that serves.
func Start(t stores.TB, args ...string) *Server {
	t.Helper()
	s := New(t, args...)
	s.Start()
	return s
}

// Start starts the server, again after Stop or Kill: at the same address, with the data that it had. It
// returns when it serves; if it does not, the test fails. A server that runs is left alone.
func (s *Server) Start() {
	s.t.Helper()
	if s.proc != nil {
		select {
		case <-s.proc.exited:
		default:
			return
		}
	}
	program := s.Program
	if program == "" {
		program = Binary(s.t)
	}
	p, err := run(exec.Command(program, s.args...))
	if err != nil {
		s.t.Fatal(err)
	}
	s.proc = p
	s.proc.Wants(s.t, `msg=ready .*addr=`)
}

// Kill ends the server as a crash does (SIGKILL), and returns when it is gone.
func (s *Server) Kill() { s.proc.Kill() }

// Stop ends the server in good order (SIGTERM), and returns when it is gone.
func (s *Server) Stop() {
	s.t.Helper()
	s.proc.Signal(syscall.SIGTERM)
	s.proc.Wait(s.t)
}

// Restart kills the server and starts it again.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.Start()
}

// Pause freezes the server: its connections stay open and nothing is answered, until Resume.
func (s *Server) Pause() { s.proc.Pause() }

// Resume lets a server go on that was paused.
func (s *Server) Resume() { s.proc.Resume() }

// Prefer lets the server run before others, see [Process.Prefer], until it is started again. A test for which that is
// not permitted says so: what it measures is how busy the machine is, too.
func (s *Server) Prefer(t testing.TB) {
	if !PreferServer(s.proc.cmd.Process.Pid) {
		t.Log("the server runs as all others do: a priority of real time is not permitted")
	}
}

// Replace kills the server and starts another in its place, at the same address, that has none
// of its data.
func (s *Server) Replace() {
	s.t.Helper()
	s.Kill()
	s.Dir = s.t.TempDir() + "/data"
	s.args = append(s.args, "--data-dir", s.Dir)
	s.Start()
}

// Log returns what the server has logged since it was started last.
func (s *Server) Log() string { return s.proc.Output() }

// Pid is the process of the server that runs, or ran last.
func (s *Server) Pid() int { return s.proc.cmd.Process.Pid }
