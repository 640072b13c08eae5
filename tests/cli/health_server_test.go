package cli

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// These tests use a real server, and those of health_test.go a fake one.

func httpAddr(t *testing.T) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(stores.FreePort(t)))
}

func TestHealthOfAServerFollowsItsStore(t *testing.T) {
	store, addr := stores.Redis(t), httpAddr(t)
	s := simbatest.Start(t, "--engine", "redis", "--redis-url", "redis://"+store.Addr, "--backend-timeout", "500ms", "--http-addr", addr)
	health := func() result { return runWith(t, nil, "health", "--url", "http://"+addr) }
	if r := health(); r.code != 0 || r.err != "" || !strings.HasPrefix(r.out, `{"ready":true,"state":"running","store":true,`) {
		t.Errorf("health of a ready server: %+v, want exit code 0", r)
	}
	store.Stop()
	r := health()
	for r.code == 0 { // the server uses the result of a probe for a second
		r = health()
	}
	r.fails(t, 1, addr+": not ready: 503 Service Unavailable")
	if !strings.HasPrefix(r.out, `{"ready":false,"state":"running","store":false,`) || !strings.Contains(r.out, "engine redis unavailable") {
		t.Errorf("without a store, health prints %q, want that the server is not ready, and the error of the store", r.out)
	}
	s.Kill()
	health().fails(t, 1, addr+": connection refused; check that the server runs with --http-addr")
}

func TestHealthOfAServerWithTLSNeedsItsCertificates(t *testing.T) {
	a, dir, addr := certs.NewAuthority(t, "test"), t.TempDir(), httpAddr(t)
	cert, key := a.Sign(t, certs.Leaf{Name: "server"}).Write(t, dir, "server")
	own, ownKey := a.Sign(t, certs.Leaf{Name: "prober"}).Write(t, dir, "prober")
	ca := a.Write(t, dir, "ca")
	simbatest.Start(t, "--durability", "memory", "--addr", "127.0.0.1:0", "--http-addr", addr, "--tls-addr", "127.0.0.1:0",
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca, "--tls-auth-clients", "yes")
	url := "https://" + strings.Replace(addr, "127.0.0.1", "localhost", 1)
	if r := runWith(t, nil, "health", "--url", url, "--cacert", ca, "--cert", own, "--key", ownKey); r.code != 0 || r.err != "" {
		t.Errorf("health with TLS: %+v", r)
	}
	runWith(t, nil, "health", "--url", url, "--cacert", ca).fails(t, 1, "certificate")
	runWith(t, nil, "health", "--url", url, "--cert", own, "--key", ownKey).fails(t, 1, "check --cacert")
	runWith(t, nil, "health", "--url", "http://"+addr).fails(t, 1, "the server speaks TLS on this port")
}

func TestWrongUseOfHealthHasItsOwnExitCode(t *testing.T) {
	for _, args := range [][]string{{"--no-such-flag"}, {"argument"}, {"--url", "localhost:7380"}, {"--password-file", "/nowhere", "--user", "ops"}, {"--cacert", "ca.crt"}} {
		if r := runWith(t, nil, append([]string{"health"}, args...)...); r.code != 2 || r.out != "" {
			t.Errorf("health %v: %+v, want exit code 2", args, r)
		}
	}
	// Without a password, the server would hide the error of the store.
	runWith(t, []string{"SIMBA_USER=ops"}, "health").fails(t, 2, "user ops has no password")
}
