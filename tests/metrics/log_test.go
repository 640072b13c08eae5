package metrics

import (
	"net"
	"net/http"
	"strconv"
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// startUnread starts a server whose log goes to a pipe that nobody reads.
func startUnread(t *testing.T) *server {
	addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t)))
	s := simbatest.StartUnread(t, "--http-addr", addr, "--durability", "memory")
	web := &server{&simbatest.Server{Addr: s.Addr}, "http://" + addr, httpClient(t, nil)}
	simbatest.Await(t, "the server is ready", func() bool {
		reply, err := web.client.Get(web.url + "/readyz")
		if err != nil {
			return false
		}
		reply.Body.Close()
		return reply.StatusCode == http.StatusOK
	})
	return web
}

// floodLog sends audited commands until the pipe and the server's buffer are full.
func floodLog(t *testing.T, s *server) {
	c := simbatest.Conn(t, s.Server)
	defer c.Close()
	for range 40 {
		for range 500 {
			simbatest.Must(t, c.Send("CONFIG", "GET", "maxclients"))
		}
		simbatest.Do(t, c, "")
	}
}
