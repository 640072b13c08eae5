package cli

import (
	"cmp"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
)

const (
	defaultURL  = "redis://127.0.0.1:7379"
	defaultPort = "7379"
)

// target is a parsed URL of a server.
type target struct {
	network string // tcp or unix
	addr    string // host:port, with commas between several, or the path of the socket
	host    string // of the first addr; the server's certificate must have it; "" = a socket
	tls     bool
	secure  string // the form of a URL with TLS, for errors

	hasLogin       bool
	user, password string
}

const forms = "use redis://host:port, rediss://host:port or unix:///path"

// parseURL parses the URL of a server, which may have several hosts with commas between them. Its
// errors repeat no part of the URL: after a misplaced "@" or "/", any part can belong to the
// password.
func parseURL(raw string) (t target, err error) {
	switch {
	case strings.Contains(raw, "://"):
	case strings.ContainsAny(raw, "@/"):
		return t, errors.New(forms)
	default:
		raw = "redis://" + raw
	}
	begin := strings.Index(raw, "://") + len("://")
	end := len(raw)
	if n := strings.IndexAny(raw[begin:], "/?#"); n >= 0 {
		end = begin + n
	}
	begin += strings.LastIndex(raw[begin:end], "@") + 1
	for i, host := range strings.Split(raw[begin:end], ",") {
		one, err := parseOne(raw[:begin] + host + raw[end:])
		if err != nil {
			return t, err
		}
		if i == 0 {
			t = one
		} else {
			t.addr += "," + one.addr
		}
	}
	return t, nil
}

// parseOne is parseURL for one host.
func parseOne(raw string) (t target, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return t, errors.New("it cannot be parsed; special characters in user and password must be percent-encoded")
	}
	t.secure = "rediss://host:port"
	if u.User != nil {
		t.hasLogin, t.user = true, u.User.Username()
		t.password, _ = u.User.Password()
	}
	switch u.Scheme {
	case "redis", "rediss":
		t.network, t.tls = "tcp", u.Scheme == "rediss"
		err = t.setHost(u)
	case "unix":
		t.network, t.addr = "unix", u.Path
		if u.Host != "" || u.Opaque != "" || !strings.HasPrefix(u.Path, "/") {
			err = errors.New("a socket is written as unix:///path/to/socket")
		}
	default:
		err = errors.New(forms)
	}
	if err == nil && (u.RawQuery != "" || u.ForceQuery || u.Fragment != "") {
		err = errors.New("'?' and '#' must be percent-encoded; it takes no parameters")
	}
	return t, err
}

func (t *target) setHost(u *url.URL) error {
	port := cmp.Or(u.Port(), defaultPort)
	t.host = u.Hostname()
	n, err := strconv.ParseUint(port, 10, 16)
	switch {
	case u.Opaque != "" || t.host == "":
		return errors.New("its host is missing; write redis://host:port")
	case err != nil || n == 0:
		return errors.New("its port must be a number from 1 to 65535")
	case u.Path != "" && u.Path != "/" && u.Path != "/0":
		return errors.New("there is only database 0, so nothing follows host:port; '/' in a password must be percent-encoded")
	}
	t.addr = net.JoinHostPort(t.host, port)
	return nil
}
