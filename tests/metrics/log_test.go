package metrics

import (
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// startUnread starts a server whose log goes to a pipe that nobody reads.
func startUnread(t *testing.T) *server {
	var ends [2]int // a blocking pipe, like that of a shell
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	out, in := os.NewFile(uintptr(ends[0]), "log"), os.NewFile(uintptr(ends[1]), "log")
	t.Cleanup(func() { out.Close() })
	defer in.Close()
	local := func() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t))) }
	s := &simbatest.Server{Addr: local()}
	addr := local()
	cmd := exec.Command(simbatest.Binary(t), "--addr", s.Addr, "--http-addr", addr, "--durability", "memory")
	cmd.Env, cmd.Stderr = simbatest.Environ(), in
	exited := make(chan struct{})
	err := simbatest.StartCmd(cmd, func() {
		defer close(exited)
		_ = cmd.Wait() // an error, since the test kills the process
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	web := &server{s, "http://" + addr, httpClient(t, nil)}
	await(t, "the server is ready", func() bool {
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
			if err := c.Send("CONFIG", "GET", "maxclients"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Do(""); err != nil {
			t.Fatal(err)
		}
	}
}
