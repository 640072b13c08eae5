package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/simba-resp/simba-resp/credentials"
)

// topology is the kind of Redis that a URL names.
type topology uint8

const (
	single topology = iota
	sentinel
	cluster
)

// target is a parsed URL.
type target struct {
	topology topology
	addrs    []string
	master   string // Sentinel's name of the primary
	db       int

	user, password                 string
	sentinelUser, sentinelPassword string

	tls           *tls.Config          // nil = no TLS
	expires       map[string]time.Time // when the certificates of tls expire, by setting
	poolSize      int
	allowEviction bool
	fenceTTL      time.Duration // 0 = for ever
}

// The bounds of fence-ttl.
const minFenceTTL, maxFenceTTL = time.Second, 100 * 365 * 24 * time.Hour

var schemes = map[string]topology{"redis": single, "redis+sentinel": sentinel, "redis+cluster": cluster}

// parseURL parses Options.URL. Its errors never show a part of the URL that may belong to a
// password.
func parseURL(raw string) (target, error) {
	t, err := parseTarget(raw)
	if err != nil {
		return t, fmt.Errorf("invalid redis url: %w", err)
	}
	return t, nil
}

func parseTarget(raw string) (t target, err error) {
	u, hosts, err := splitHosts(raw)
	if err != nil {
		return t, err
	}
	var ok bool
	if t.topology, ok = schemes[strings.Replace(u.Scheme, "rediss", "redis", 1)]; !ok {
		return t, fmt.Errorf("unknown scheme %q: use redis, redis+sentinel or redis+cluster, with TLS rediss, rediss+sentinel or rediss+cluster", u.Scheme)
	}
	t.user = u.User.Username()
	t.password, _ = u.User.Password()
	if err := t.setHosts(hosts); err != nil {
		return t, err
	}
	if err := t.setPath(u.Path); err != nil {
		return t, err
	}
	return t, t.setQuery(u.RawQuery, strings.HasPrefix(u.Scheme, "rediss"))
}

// splitHosts cuts the list of hosts out of a URL and parses the rest, because url.Parse accepts
// only one host.
func splitHosts(raw string) (u *url.URL, hosts string, err error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, "", errors.New("the scheme is missing: write redis://host:6379")
	}
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	authority, tail := rest[:end], rest[end:]
	at := strings.LastIndexByte(authority, '@') + 1
	u, err = url.Parse(scheme + "://" + authority[:at] + "host" + tail)
	if err != nil {
		return nil, "", errors.New("it cannot be parsed: special characters in user or password must be percent-encoded")
	}
	// If a password contains '/', '?' or '#', the list of hosts ends too soon, and the '@' follows
	// later. Without this check, errors could show parts of the password.
	if strings.ContainsAny(tail, "@#") {
		return nil, "", errors.New("it has a '@' or '#' after the hosts: special characters in user or password must be percent-encoded")
	}
	return u, authority[at:], nil
}

// setHosts parses the list of hosts. A host without a port gets the default port.
func (t *target) setHosts(hosts string) error {
	port := "6379"
	if t.topology == sentinel {
		port = "26379"
	}
	for h := range strings.SplitSeq(hosts, ",") {
		host, p, err := net.SplitHostPort(h)
		if err != nil { // no port
			host, p = strings.Trim(h, "[]"), port
		}
		if host == "" {
			return errors.New("a host is missing")
		}
		if n, err := strconv.ParseUint(p, 10, 16); err != nil || n == 0 { // p may be a password
			return fmt.Errorf("the port of host %q is not a number from 1 to 65535", host)
		}
		t.addrs = append(t.addrs, net.JoinHostPort(host, p))
	}
	if t.topology == single && len(t.addrs) > 1 {
		return errors.New("it names several hosts: use redis+sentinel:// or redis+cluster://")
	}
	return nil
}

// setPath parses the path. Behind Sentinel it begins with the primary's name. The number of the
// database follows.
func (t *target) setPath(path string) error {
	parts := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	if t.topology == sentinel {
		if len(parts) == 0 {
			return errors.New("the primary's name is missing: redis+sentinel://host:26379/name")
		}
		t.master, parts = parts[0], parts[1:]
	}
	if len(parts) == 0 {
		return nil
	}
	db, err := strconv.Atoi(parts[0])
	if err != nil || db < 0 || len(parts) > 1 {
		return fmt.Errorf("%q is not a database number", strings.Join(parts, "/"))
	}
	if t.topology == cluster && db != 0 {
		return errors.New("a cluster has only database 0")
	}
	t.db = db
	return nil
}

// setQuery parses the parameters of the query. If secure is true, it also prepares TLS.
func (t *target) setQuery(raw string, secure bool) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return errors.New("its query cannot be parsed")
	}
	ca, cert, key := credentials.File{Setting: "redis-url tls-ca"}, credentials.File{Setting: "redis-url tls-cert"}, credentials.File{Setting: "redis-url tls-key"}
	name := ""
	texts := map[string]*string{
		"tls-ca": &ca.Path, "tls-cert": &cert.Path, "tls-key": &key.Path, "tls-server-name": &name,
		"sentinel-user": &t.sentinelUser, "sentinel-password": &t.sentinelPassword,
	}
	for k, values := range query {
		v := values[0]
		switch {
		case texts[k] != nil:
			*texts[k] = v
		case k == "pool-size":
			if t.poolSize, err = strconv.Atoi(v); err != nil || t.poolSize < 0 || t.poolSize > 10000 {
				return fmt.Errorf("pool-size %q is not a number from 0 to 10000", v)
			}
		case k == "allow-eviction":
			if t.allowEviction, err = strconv.ParseBool(v); err != nil {
				return fmt.Errorf("allow-eviction %q is not true or false", v)
			}
		case k == "fence-ttl":
			if t.fenceTTL, err = time.ParseDuration(v); err != nil || t.fenceTTL < minFenceTTL || t.fenceTTL > maxFenceTTL {
				return fmt.Errorf("fence-ttl %q is not a duration from %v to %v", v, minFenceTTL, maxFenceTTL)
			}
		default:
			return fmt.Errorf("unknown parameter %q: use tls-ca, tls-cert, tls-key, tls-server-name, sentinel-user, sentinel-password, pool-size, allow-eviction and fence-ttl", k)
		}
		if len(values) > 1 {
			return fmt.Errorf("parameter %q is given twice", k)
		}
		if strings.HasPrefix(k, "tls-") && !secure {
			return fmt.Errorf("parameter %q needs TLS: use rediss://", k)
		}
		if strings.HasPrefix(k, "sentinel-") && t.topology != sentinel {
			return fmt.Errorf("parameter %q needs redis+sentinel://", k)
		}
	}
	if !secure {
		return nil
	}
	t.tls, t.expires, err = credentials.TLS(ca, cert, key, name)
	return err
}
