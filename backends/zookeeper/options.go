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
	auth    []byte // "user:password"; nil = no authentication
}

func (o *Options) parse() (t target, err error) {
	hosts, chroot, below := strings.Cut(o.Servers, "/")
	if below {
		t.chroot = strings.TrimSuffix("/"+chroot, "/")
	}
	for h := range strings.SplitSeq(hosts, ",") {
		h = strings.TrimSpace(h)
		host, port, err := net.SplitHostPort(h)
		if err != nil {
			host, port, err = net.SplitHostPort(h + ":2181")
		}
		if _, invalid := strconv.ParseUint(port, 10, 16); err != nil || invalid != nil || host == "" {
			return t, fmt.Errorf("invalid zookeeper servers %q: %q is not host:port", o.Servers, h)
		}
		t.servers = append(t.servers, net.JoinHostPort(host, port))
	}
	if o.Auth != "" {
		auth, isDigest := strings.CutPrefix(o.Auth, "digest:")
		user, password, _ := strings.Cut(auth, ":")
		if !isDigest || user == "" || password == "" {
			return t, errors.New(`invalid zookeeper auth: it must be "digest:user:password"`)
		}
		t.auth = []byte(auth)
	}
	return t, nil
}
