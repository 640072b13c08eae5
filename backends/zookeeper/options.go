package zookeeper

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
)

// DefaultSessionTimeout is twice the default lease of the commands lock and elect, 10 s + 5 s. The
// default lease of the Go client is shorter. See Backend.LongestLease.
const DefaultSessionTimeout = 30 * time.Second

// Options configure the engine.
type Options struct {
	proxy.Options // without Poll

	// Servers is a connect string in the syntax of ZooKeeper's own clients: "h1:2181,h2:2181",
	// optionally with a chroot at the end: "h1:2181,h2:2181/teams/a". The default port is 2181. The
	// chroot must exist.
	Servers string
	// Auth is "digest:user:password", or empty. If it is set, only that user has rights to the
	// nodes. If it is empty, everybody has.
	Auth string
	// SessionTimeout is how long the ensemble keeps a session without contact to this server. Then
	// it deletes the session's nodes, which ends the leases that this server granted. 0 =
	// DefaultSessionTimeout. The ensemble may choose another value, which then applies.
	SessionTimeout time.Duration
}

// target is the parsed form of Options.Servers and Options.Auth.
type target struct {
	servers []string
	chroot  string // "" or "/a/b"
	scheme  string // "" = no authentication
	auth    []byte
}

func (o *Options) parse() (t target, err error) {
	if t.servers, t.chroot, err = parseServers(o.Servers); err != nil {
		return t, err
	}
	if o.Auth != "" {
		scheme, rest, _ := strings.Cut(o.Auth, ":")
		user, password, ok := strings.Cut(rest, ":")
		if scheme != "digest" || !ok || user == "" || password == "" {
			return t, errors.New(`invalid zookeeper auth: it must be "digest:user:password"`)
		}
		t.scheme, t.auth = scheme, []byte(rest)
	}
	return t, nil
}

func parseServers(s string) (servers []string, chroot string, err error) {
	hosts := s
	if i := strings.IndexByte(s, '/'); i >= 0 {
		hosts, chroot = s[:i], strings.TrimSuffix(s[i:], "/")
	}
	for h := range strings.SplitSeq(hosts, ",") {
		if h = strings.TrimSpace(h); h == "" {
			return nil, "", fmt.Errorf("invalid zookeeper servers: %q names no server, or has an empty element", s)
		}
		if !strings.Contains(h, ":") || strings.HasPrefix(h, "[") && strings.HasSuffix(h, "]") {
			h += ":2181"
		}
		_, port, err := net.SplitHostPort(h)
		if n, perr := strconv.Atoi(port); err != nil || perr != nil || n < 1 || n > 65535 {
			return nil, "", fmt.Errorf("invalid zookeeper servers: %q is not host:port", h)
		}
		servers = append(servers, h)
	}
	return servers, chroot, nil
}
