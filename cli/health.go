package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

const (
	defaultHTTP   = "http://127.0.0.1:7380"
	readyPath     = "/readyz"
	healthTimeout = 5 * time.Second
	largestHealth = 64 << 10 // bytes of the body that health prints at most
)

// httpFlags are the settings of the command health, which has a URL of its own.
var httpFlags = append([]connectionFlag{
	{urlFlag, "http-url", "`URL` of the server's HTTP listener, or SIMBA_HTTP_URL, or http-url in the file (default " + defaultHTTP + ")"},
}, connectionFlags[1:]...)

func healthCommand() *cobra.Command {
	cmd := newCommand("health", "Ask the HTTP listener of a server whether it is ready", arguments(0, 0, ""), health)
	cmd.Long = cmd.Short + `, and print the reply.

The server must have the setting --http-addr. If the URL has no path, it is ` + readyPath + `. Exit code 1:
the server is not ready, or does not reply within 5 s.`
	addFlags(cmd, httpFlags)
	return cmd
}

// health asks the server and prints the reply. If the server is not ready, the error has exit code
// 1.
func health(cmd *cobra.Command, _ []string) error {
	settings, err := readSettings(cmd, httpFlags)
	if err != nil {
		return err
	}
	s := settings[urlFlag]
	u, t, err := parseHTTP(cmp.Or(s.value, defaultHTTP))
	if err != nil {
		return Usagef("%s: %w", cmp.Or(s.where, "--"+urlFlag), err)
	}
	user, password, err := login(settings, t)
	if err != nil {
		return err
	}
	secure, err := tlsConfig(settings, t)
	if err != nil {
		return err
	}
	r := (&http.Request{Method: http.MethodGet, URL: u, Header: make(http.Header)}).WithContext(cmd.Context())
	if password != "" {
		r.SetBasicAuth(cmp.Or(user, "default"), password)
	}
	client := http.Client{
		Timeout:   healthTimeout,
		Transport: &http.Transport{TLSClientConfig: secure, DisableKeepAlives: true, Proxy: nil},
		// A redirect could carry the password elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(r)
	if err != nil {
		return no("%s: %s", Printable(u.Host), explainHTTP(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, largestHealth))
	if err != nil {
		return no("%s: %s", Printable(u.Host), explainHTTP(err))
	}
	if resp.StatusCode == http.StatusBadRequest && strings.Contains(string(body), "HTTP request to an HTTPS server") {
		return no("%s: the server speaks TLS on this port; set --%s or SIMBA_HTTP_URL to https://%s", Printable(u.Host), urlFlag, Printable(u.Host))
	}
	for line := range strings.Lines(string(body)) {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), Printable(strings.TrimRight(line, "\r\n"))); err != nil {
			return err
		}
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		return no("%s: the server asks for a login; set --user and --password-file or SIMBA_PASSWORD", Printable(u.Host))
	}
	return no("%s: not ready: %s", Printable(u.Host), Printable(resp.Status))
}

// parseHTTP parses the URL of the HTTP listener. Its errors repeat no part of it.
func parseHTTP(raw string) (*url.URL, target, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, target{}, errors.New("use http://host:port or https://host:port; special characters in user and password must be percent-encoded")
	}
	t := target{host: u.Hostname(), tls: u.Scheme == "https", secure: "https://host:port"}
	if u.User != nil {
		t.hasLogin, t.user = true, u.User.Username()
		t.password, _ = u.User.Password()
		u.User = nil
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = readyPath
	}
	return u, t, nil
}

// explainHTTP returns the text of an error without the URL.
func explainHTTP(err error) string {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		err = e.Err
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "connection refused; check that the server runs with --http-addr, and the URL"
	}
	if strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		return "the server does not speak TLS on this port; use http://"
	}
	if strings.Contains(err.Error(), "malformed HTTP") {
		return "the server does not speak HTTP on this port; use the port of --http-addr"
	}
	return explain(nil, err)
}
