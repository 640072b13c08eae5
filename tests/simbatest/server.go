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

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// Server is a simba-resp server. A restart keeps its address and data directory, and changes only
// its process. The methods are not safe for concurrent use.
type Server struct {
	*Process          // the process started last; nil = none yet
	Addr     string   // host:port
	Dir      string   // data directory of the embedded engine
	Command  []string // program and first arguments; nil = the path of Binary

	t    stores.TB
	args []string
}

// New returns a server that does not run yet. It has a free port and its own data directory. args
// are further flags; --addr or --data-dir among them replace those of New.
func New(t stores.TB, args ...string) *Server {
	t.Helper()
	s := &Server{Addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t))), Dir: t.TempDir() + "/data", t: t}
	s.args = append([]string{"--addr", s.Addr, "--data-dir", s.Dir}, args...)
	// Cleanups run last first. So those that the test adds later run while the server still runs.
	t.Cleanup(func() {
		if s.Process != nil {
			s.Kill()
		}
	})
	return s
}

// Start returns a new server that serves. args are the same as for New.
func Start(t stores.TB, args ...string) *Server {
	t.Helper()
	s := New(t, args...)
	s.Start()
	return s
}

// StartIn works like Start, with the given data directory.
func StartIn(t stores.TB, dir string, args ...string) *Server {
	t.Helper()
	s := New(t, append(args, "--data-dir", dir)...)
	s.Dir = dir
	s.Start()
	return s
}

// Launch starts the server's program with the given flags. It does not wait until the server
// serves.
func Launch(t stores.TB, args ...string) *Process {
	t.Helper()
	return Run(t, Binary(t), args...)
}

// Refused runs the server with flags that it must refuse. The server must exit with the given code,
// and log a single line, which contains the text why.
func Refused(t stores.TB, code int, why string, args ...string) {
	t.Helper()
	p := Launch(t, args...)
	if got := p.Wait(t); got != code {
		t.Errorf("the refused server exits with code %d, want %d", got, code)
	}
	log := strings.TrimSpace(p.Output())
	if !strings.Contains(log, why) || strings.Count(log, "\n") > 0 {
		t.Errorf("the refused server logs:\n%s\nwant one line with %q", log, why)
	}
}

// Start starts the server, also again after Stop or Kill. It returns when the server serves; if the
// server does not, the test fails. Start does nothing if the server runs.
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

// ready matches the line that a server logs when it begins to serve.
const ready = `msg=ready .*addr=`

// StartOrEnd starts the server. It returns true when the server serves, or false if the process
// ends before.
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
	Must(s.t, err)
	s.Process = p
}

// Stop sends SIGTERM, and returns when the server has ended.
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

// Prefer gives the server's process a real-time priority, see [Process.Prefer]. Without the
// permission, it logs that figures depend on how busy the machine is.
func (s *Server) Prefer(t testing.TB) {
	if !PreferServer(s.Pid()) {
		t.Log("the server has no real-time priority: the test lacks the permission")
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

func (s *Server) Port() string { return s.Addr[strings.LastIndexByte(s.Addr, ':')+1:] }

// Log returns what the server has logged since its last start.
func (s *Server) Log() string { return s.Output() }
