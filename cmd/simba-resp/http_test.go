package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestInvalidHTTPSettingsAreRefused(t *testing.T) {
	s := newSite(t)
	tls := []string{"--tls-addr", "127.0.0.1:0", "--tls-cert-file", s.path("server.crt"), "--tls-key-file", s.path("server.key")}
	mutual := append(slices.Clone(tls), "--tls-ca-cert-file", s.path("ca.crt"), "--tls-auth-clients", "yes")
	open := usersFile(t, "user default off\nuser a on nopass")
	closed := usersFile(t, "user default off\nuser a on >pw")
	for _, c := range []struct {
		args []string
		want string // part of the error; "" = none
	}{
		{[]string{"--http-addr", "127.0.0.1:0"}, ""},
		{[]string{"--http-addr", "[::1]:9100"}, ""},
		{[]string{"--http-addr", "0.0.0.0:0"}, "--http-addr: 0.0.0.0:0 is open to other machines: set --requirepass-file"},
		{[]string{"--http-addr", ":9100"}, "--http-addr: :9100 is open to other machines"},
		{[]string{"--http-addr", "0.0.0.0:0", "--requirepass", "secret"}, ""},
		{[]string{"--http-addr", "0.0.0.0:0", "--insecure"}, ""},
		{[]string{"--http-addr", "0.0.0.0:0", "--aclfile", closed}, ""},
		{[]string{"--http-addr", "0.0.0.0:0", "--aclfile", open}, "--aclfile:"},
		{append([]string{"--http-addr", "0.0.0.0:0"}, tls...), "--http-addr: 0.0.0.0:0 is open to other machines: set --tls-auth-clients yes"},
		{append([]string{"--http-addr", "0.0.0.0:0"}, mutual...), ""},
		{append([]string{"--http-addr", "0.0.0.0:0", "--aclfile", open}, mutual...), ""},
		{[]string{"--http-addr", "9100"}, "--http-addr: '9100' is not host:port"},
		{[]string{"--http-addr", "[::1]:7379"}, ""},
		{[]string{"--http-addr", "127.0.0.2:7379"}, ""},
		{[]string{"--http-pprof"}, "--http-pprof: it needs --http-addr"},
		{[]string{"--metrics-mutexes", "jobs:*"}, "--metrics-mutexes: it needs --http-addr"},
		{[]string{"--http-addr", "127.0.0.1:0", "--metrics-mutexes", "a key"}, ""},
		{[]string{"--http-addr", "127.0.0.1:0", "--engine", "redis", "--redis-url", "redis://x", "--metrics-mutexes", "jobs:*,not a name"},
			`--metrics-mutexes: "not a name": invalid mutex: it must not contain white space or control characters`},
	} {
		_, err := loadTest(t, c.args, nil, "")
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%v: error %v, want none", c.args, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%v: error %v, want %q", c.args, err, c.want)
		}
	}
}

// Without passwords, only client certificates protect an HTTPS address that other machines can
// reach.
func TestClientCertificatesStayRequiredForOpenHTTPS(t *testing.T) {
	s := newSite(t)
	a, _ := newTestApp(t, io.Discard, s.args("--tls-ca-cert-file", s.path("ca.crt"), "--tls-auth-clients", "yes", "--http-addr", "0.0.0.0:0")...)
	if err := a.settings.set(map[string]string{"tls-auth-clients": "optional"}, a.settings.tls); err == nil ||
		!strings.Contains(err.Error(), "http-addr: 0.0.0.0:0 is open to other machines") {
		t.Errorf("the change to optional certificates returned %v, want an error about http-addr", err)
	}
}

func TestListedMutexesAreGlobsBetweenCommas(t *testing.T) {
	c := &config{MetricsMutexes: "jobs:*, jobs:*,one ,,"}
	if got := c.metricsMutexes(); !slices.Equal(got, []string{"jobs:*", "one"}) {
		t.Errorf("metricsMutexes returned %q, want jobs:* and one", got)
	}
}
