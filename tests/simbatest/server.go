package simbatest

import (
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// Server is a simba-resp, the same through all its restarts. Its methods are for one goroutine at a
// time.
type Server struct {
	*Process          // the last that was started; nil = none
	Addr     string   // host:port
	Dir      string   // data directory of the embedded engine
	Command  []string // the words of the command before the flags; nil = the path of Binary

	t    stores.TB
	args []string
}

// New returns a server that does not run yet, on a free port and with a data directory of its own.
// The arguments are flags of the server. They override these two.
func New(t stores.TB, args ...string) *Server {
	t.Helper()
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t))), Dir: t.TempDir() + "/data", t: t}
	s.args = append([]string{"--addr", s.Addr, "--data-dir", s.Dir}, args...)
	// Registered once, and now: cleanups that the test adds later run while the server still runs.
	t.Cleanup(func() {
		if s.Process != nil {
			s.Kill()
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

// StartIn is Start with the given data directory.
func StartIn(t stores.TB, dir string, args ...string) *Server {
	t.Helper()
	s := New(t, append(args, "--data-dir", dir)...)
	s.Dir = dir
	s.Start()
	return s
}

// Launch runs the binary with the given flags, and does not wait until it serves.
func Launch(t stores.TB, args ...string) *Process {
	t.Helper()
	return Run(t, Binary(t), args...)
}

// Refused runs the binary, which must not serve. It must exit with that code, and log the reason in
// one line.
func Refused(t stores.TB, code int, why string, args ...string) {
	t.Helper()
	p := Launch(t, args...)
	if got := p.Wait(t); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	log := strings.TrimSpace(p.Output())
	if !strings.Contains(log, why) || strings.Count(log, "\n") > 0 {
		t.Errorf("it logs:\n%s\nwant one line with %q", log, why)
	}
}

// Start starts the server, or starts it again after Stop or Kill with its address and its data. It
// returns when the server serves. If it does not, the test fails. A running server is left alone.
func (s *Server) Start() {
	s.t.Helper()
	if s.Process != nil {
		select {
		case <-s.exited:
		default:
			return
		}
	}
	s.launch()
	s.Wants(s.t, ready)
}

// ready is logged by a server when it serves.
const ready = `msg=ready .*addr=`

// StartOrEnd is Start for a server that may end before it serves. It then returns false.
func (s *Server) StartOrEnd() bool {
	s.t.Helper()
	s.launch()
	match, _, _ := s.find(0, regexp.MustCompile(ready))
	return match != nil
}

func (s *Server) launch() {
	s.t.Helper()
	command := s.Command
	if command == nil {
		command = []string{Binary(s.t)}
	}
	p, err := run(exec.Command(command[0], slices.Concat(command[1:], s.args)...))
	if err != nil {
		s.t.Fatal(err)
	}
	s.Process = p
}

// Stop ends the server in good order (SIGTERM), and returns when it has ended.
func (s *Server) Stop() {
	s.t.Helper()
	s.Signal(syscall.SIGTERM)
	s.Wait(s.t)
}

// Restart kills the server and starts it again.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	s.Start()
}

// Prefer gives the server a real-time priority, see [PreferServer], until it is started again. A
// test without that permission logs so, since it then measures how busy the machine is, too.
func (s *Server) Prefer(t testing.TB) {
	if !PreferServer(s.Pid()) {
		t.Log("the server runs as all others do: a priority of real time is not permitted")
	}
}

// Replace kills the server and starts another at the same address, with an empty data directory.
func (s *Server) Replace() {
	s.t.Helper()
	s.Kill()
	s.Dir = s.t.TempDir() + "/data"
	s.args = append(s.args, "--data-dir", s.Dir)
	s.Start()
}

// Port returns the last part of the address.
func (s *Server) Port() string { return s.Addr[strings.LastIndexByte(s.Addr, ':')+1:] }

// Log returns what the server has logged since it was started last.
func (s *Server) Log() string { return s.Output() }
