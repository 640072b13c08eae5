package cli

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); ok && (user != "ops" || password != "s@cret") {
			status = http.StatusUnauthorized
		}
		w.WriteHeader(status)
		io.WriteString(w, r.URL.Path+"\n"+body)
	}
}

func TestHealthExitsWithTheReadinessOfTheServer(t *testing.T) {
	ready := httptest.NewServer(answer(http.StatusOK, "ok"))
	defer ready.Close()
	down := httptest.NewServer(answer(http.StatusServiceUnavailable, "store\x1b[2J unreachable\n"))
	defer down.Close()
	locked := httptest.NewServer(answer(http.StatusUnauthorized, ""))
	defer locked.Close()
	moved := httptest.NewServer(http.RedirectHandler(ready.URL, http.StatusFound))
	defer moved.Close()

	if r := runWith(t, nil, "health", "--url", ready.URL); r.code != 0 || r.out != "/readyz\nok\n" || r.err != "" {
		t.Errorf("health of a ready server: %+v, want exit code 0", r)
	}
	if r := runWith(t, []string{"SIMBA_HTTP_URL=" + ready.URL + "/livez"}, "health"); r.code != 0 || r.out != "/livez\nok\n" {
		t.Errorf("health with /livez: %+v, want exit code 0", r)
	}
	config := writeFile(t, "client.toml", "http-url = \""+ready.URL+"\"\n")
	if r := runWith(t, nil, "health", "--config", config); r.code != 0 {
		t.Errorf("health with a URL from the settings file: %+v, want exit code 0", r)
	}
	r := runWith(t, nil, "health", "--url", down.URL)
	r.fails(t, 1, "not ready: 503 Service Unavailable")
	if r.out != "/readyz\nstore\\x1b[2J unreachable\n" {
		t.Errorf("health of a server that is not ready: %+v", r)
	}
	runWith(t, nil, "health", "--url", locked.URL).fails(t, 1, "the server asks for a login")
	runWith(t, nil, "health", "--url", moved.URL).fails(t, 1, "not ready: 302")
	ready.Close()
	runWith(t, nil, "health", "--url", ready.URL).fails(t, 1, "check that the server runs with --http-addr")
	runWith(t, nil, "health", "--url", "redis://u:secret@h").fails(t, 2, "--url: use http://")
}

func TestHealthLogsInAndUsesTLS(t *testing.T) {
	s := httptest.NewTLSServer(answer(http.StatusOK, "ok"))
	defer s.Close()
	ca := writeFile(t, "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	password := writeFile(t, "password", "s@cret\n")
	if r := runWith(t, nil, "health", "--url", s.URL, "--cacert", ca, "--user", "ops", "--password-file", password); r.code != 0 {
		t.Errorf("health with a login over TLS: %+v", r)
	}
	withLogin := strings.Replace(s.URL, "https://", "https://ops:s%40cret@", 1)
	if r := runWith(t, nil, "health", "--url", withLogin, "--cacert", ca); r.code != 0 {
		t.Errorf("health with a login over TLS: %+v", r)
	}
	wrong := strings.Replace(s.URL, "https://", "https://ops:secret-but-wrong@", 1)
	r := runWith(t, nil, "health", "--url", wrong, "--cacert", ca)
	r.fails(t, 1, "the server asks for a login")
	if strings.Contains(r.out+r.err, "secret") {
		t.Errorf("the output shows the password: %+v", r)
	}
	runWith(t, nil, "health", "--url", s.URL).fails(t, 1, "check --cacert")
	host := strings.TrimPrefix(s.URL, "https://")
	if r := runWith(t, nil, "health", "--url", "http://"+host); r.out != "" {
		t.Errorf("with a URL of HTTP, health prints %q, want nothing", r.out)
	} else {
		r.fails(t, 1, "the server speaks TLS on this port; set --url or SIMBA_HTTP_URL to https://"+host)
	}
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
