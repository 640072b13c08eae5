package zookeeper

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp"
)

// Defaults of Options.
const (
	DefaultTimeout        = 3 * time.Second
	DefaultSessionTimeout = 10 * time.Second
	DefaultSessions       = 4
)

// Options say which ensemble to use and how.
type Options struct {
	// Servers is a connect string as ZooKeeper's own clients take it: "h1:2181,h2:2181",
	// with a chroot behind the last if there is one: "h1:2181,h2:2181/teams/a". A
	// server without a port has 2181. The chroot must exist.
	Servers string
	// Auth is "digest:user:password", or empty for none. With it, nodes are made
	// so that only that user has any right to them; without, everybody has.
	Auth string
	// SessionTimeout is how long the ensemble waits for this server before it takes
	// its nodes, and so the leases that it keeps, away. 0 = DefaultSessionTimeout.
	// The ensemble may insist on another, which then counts.
	SessionTimeout time.Duration
	// Sessions is how many sessions the server opens; the mutexes are shared out among
	// them. 0 = DefaultSessions: about twice as fast as one when many clients ask for
	// mutexes of their own.
	Sessions int
	// Timeout bounds every call that asks the ensemble. 0 = DefaultTimeout.
	Timeout time.Duration

	HandoffWindow time.Duration // initial, see proxy.QueueSettings; 0 = 0
	QueueGrace    time.Duration // initial, see proxy.QueueSettings; 0 = 0

	Notices simba.Notices // required
	Logger  *slog.Logger  // nil = discard
}

func (o *Options) ensureDefaults() {
	if o.SessionTimeout == 0 {
		o.SessionTimeout = DefaultSessionTimeout
	}
	if o.Sessions == 0 {
		o.Sessions = DefaultSessions
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// target is what the options say about where to connect and as whom.
type target struct {
	servers []string
	chroot  string // "" or "/a/b"
	scheme  string // "" = no authentication
	auth    []byte
}

func (o *Options) validate() (t target, err error) {
	if o.Notices == nil {
		return t, errors.New("notices are missing")
	}
	if o.SessionTimeout < 0 || o.Timeout < 0 || o.Sessions < 0 {
		return t, errors.New("session timeout, timeout and sessions must not be negative")
	}
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

// parseServers reads a connect string.
func parseServers(s string) (servers []string, chroot string, err error) {
	hosts := s
	if i := strings.IndexByte(s, '/'); i >= 0 {
		hosts, chroot = s[:i], strings.TrimSuffix(s[i:], "/")
		if strings.Contains(chroot, "//") {
			return nil, "", fmt.Errorf("invalid zookeeper servers: the chroot %q has an empty part", chroot)
		}
		for part := range strings.SplitSeq(chroot, "/") {
			if part == "." || part == ".." {
				return nil, "", fmt.Errorf("invalid zookeeper servers: the chroot %q is relative", chroot)
			}
		}
	}
	for h := range strings.SplitSeq(hosts, ",") {
		if h = strings.TrimSpace(h); h == "" {
			return nil, "", fmt.Errorf("invalid zookeeper servers: %q names no server, or has an empty place in its list", s)
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
