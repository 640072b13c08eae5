package stores

import (
	"strconv"

	"github.com/simba-resp/simba-resp/tests/need"
)

// Redis starts a redis-server. Its data survives Stop and Kill, in an append only file without
// fsync. The arguments are for redis-server, such as "--requirepass", "secret". They override the
// defaults.
func Redis(t TB, args ...string) *Server {
	t.Helper()
	return start(t, redisServer(t, args...))
}

func redisServer(t TB, args ...string) *Server {
	t.Helper()
	port := FreePort(t)
	s := &Server{
		Addr:    local(port),
		Dir:     Scratch(t),
		program: need.Program(t, "redis-server", "redis-server"),
	}
	s.args = append([]string{
		"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", s.Dir,
		"--save", "", "--appendonly", "yes", "--appendfsync", "no",
	}, args...)
	// A server that requires a password answers -NOAUTH.
	s.ready = func() error { return answers(s.Addr, "PING\r\n", "+PONG", "-NOAUTH") }
	return s
}
