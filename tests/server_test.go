package tests

import (
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// server is a running simba-resp. What it writes is its log.
type server struct {
	*process
	addr string
	dir  string // data directory
}

// readyLine is what a server logs when it serves, with its address.
const readyLine = `msg=ready .*addr=(\S+)`

// start runs a server on a free port with a data directory of its own.
func start(t testing.TB, args ...string) *server {
	t.Helper()
	return startIn(t, t.TempDir()+"/data", args...)
}

// startIn runs a server on the given data directory.
func startIn(t testing.TB, dir string, args ...string) *server {
	t.Helper()
	s := &server{process: launch(t, append([]string{"--addr", "127.0.0.1:0", "--data-dir", dir}, args...)...), dir: dir}
	s.addr = s.wants(t, readyLine)[1]
	return s
}

// launch runs the binary and does not wait for anything.
func launch(t testing.TB, args ...string) *process {
	t.Helper()
	return run(t, simbatest.Binary(t), args...)
}

// port is the last part of the address.
func (s *server) port() string { return s.addr[strings.LastIndexByte(s.addr, ':')+1:] }
