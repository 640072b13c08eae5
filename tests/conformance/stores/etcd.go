package stores

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

// Etcd starts an etcd with one member. The arguments are for etcd.
func Etcd(t TB, args ...string) *Server {
	t.Helper()
	return EtcdCluster(t, 1, args...)[0]
}

// EtcdCluster starts an etcd with n members. It returns when each member answers. The arguments are
// for each etcd.
func EtcdCluster(t TB, n int, args ...string) (members []*Server) {
	t.Helper()
	var peers, named []string
	for i := range n {
		members = append(members, &Server{Addr: local(FreePort(t)), Dir: Scratch(t), program: need.Program(t, "etcd", "etcd-server")})
		peers = append(peers, "http://"+local(FreePort(t)))
		named = append(named, fmt.Sprintf("member%d=%s", i, peers[i]))
	}
	healthy := &http.Client{Timeout: time.Second}
	for i, s := range members {
		url := "http://" + s.Addr
		s.args = append([]string{
			"--name", fmt.Sprintf("member%d", i), "--data-dir", s.Dir + "/data", "--log-level", "warn",
			"--listen-client-urls", url, "--advertise-client-urls", url,
			"--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", strings.Join(named, ","),
		}, args...)
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
	}
	startAll(t, members)
	return members
}
