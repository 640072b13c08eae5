package stores

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

// Etcd starts an etcd with one member. The arguments are for etcd.
func Etcd(t TB, args ...string) *Server {
	t.Helper()
	client, peer := FreePort(t), FreePort(t)
	s := &Server{Addr: local(client), Dir: Scratch(t), program: need.Program(t, "etcd", "etcd-server")}
	url, peers := "http://"+s.Addr, "http://127.0.0.1:"+strconv.Itoa(peer)
	s.args = append([]string{
		"--name", "one", "--data-dir", s.Dir + "/data", "--log-level", "warn",
		"--listen-client-urls", url, "--advertise-client-urls", url,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "one=" + peers,
	}, args...)
	healthy := &http.Client{Timeout: time.Second}
	s.ready = func() error {
		r, err := healthy.Get(url + "/health")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is not healthy: %s", s.Addr, r.Status)
		}
		return nil
	}
	return start(t, s)
}
