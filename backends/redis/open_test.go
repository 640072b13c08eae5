package redis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// refused returns the error of Open for a url that Open must refuse.
func refused(t *testing.T, url string) string {
	t.Helper()
	return refusedWithin(t, url, time.Minute) // a busy Redis must have time to answer
}

func refusedWithin(t *testing.T, url string, timeout time.Duration) string {
	t.Helper()
	b, err := Open(t.Context(), Options{URL: url, Options: proxy.Options{Notices: noNotices{}, Timeout: timeout}})
	if err == nil {
		_ = b.Close()
		t.Fatalf("Open of %s succeeded, want an error", url)
	}
	if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Open: %v; want one line without the password", err)
	}
	return err.Error()
}

func mentions(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q should mention %q", text, w)
		}
	}
}

func TestOpenReportsMissingOrWrongPassword(t *testing.T) {
	s := stores.Redis(t, "--requirepass", "secret")
	mentions(t, refused(t, "redis://"+s.Addr), s.Addr, "NOAUTH", "password")
	mentions(t, refused(t, "redis://:hunter2@"+s.Addr), s.Addr, "password")
	serve(t, "redis://:secret@"+s.Addr, noNotices{})
}

func TestOpenRefusesReplica(t *testing.T) {
	s := stores.Redis(t)
	host, port, _ := net.SplitHostPort(s.Addr)
	replica := stores.Redis(t, "--replicaof", host+" "+port)
	mentions(t, refused(t, "redis://"+replica.Addr), "replica", "READONLY", s.Addr)
}

func opened(t *testing.T, url string) string {
	t.Helper()
	var log bytes.Buffer
	b, err := Open(t.Context(), Options{URL: url, Options: proxy.Options{Notices: noNotices{}, Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	must(t, err)
	_ = b.Close()
	return log.String()
}

func TestOpenWarnsOfLocksThatRedisMayLose(t *testing.T) {
	s := stores.Redis(t, "--appendfsync", "always")
	url := "redis://" + s.Addr
	for _, c := range []struct{ setting, bad, good, word string }{
		{"appendfsync", "everysec", "always", "everysec"},
		{"appendonly", "no", "yes", "append only file"},
		{"replica-read-only", "no", "yes", "replica-read-only"},
		{"maxmemory-policy", "allkeys-lru", "noeviction", "allkeys-lru"}, // maxmemory is 0
	} {
		configure(t, s.Addr, c.setting, c.bad)
		mentions(t, opened(t, url), c.word)
		configure(t, s.Addr, c.setting, c.good)
	}
	if log := opened(t, url); log != "" {
		t.Errorf("Open logs a warning without a reason: %s", log)
	}
	configure(t, s.Addr, "maxmemory", "100mb", "maxmemory-policy", "volatile-lru")
	mentions(t, refused(t, url), "volatile-lru", "noeviction", "allow-eviction")
	mentions(t, opened(t, url+"?allow-eviction=true"), "volatile-lru")
}

func TestOpenRefusesClusterNodeAsSingleServer(t *testing.T) {
	s := stores.Redis(t, "--cluster-enabled", "yes")
	mentions(t, refused(t, "redis://"+s.Addr), "redis+cluster://")
}

func TestOpenReportsUnreachableRedisInTime(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close() // it accepts connections and never answers
	start := time.Now()
	mentions(t, refusedWithin(t, "redis://"+l.Addr().String(), 2*time.Second), l.Addr().String())
	if took := time.Since(start); took > need.Hang {
		t.Errorf("Open returned its error after %v, too late", took)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if _, err := l.Accept(); err == nil {
			cancel()
		}
	}()
	_, err = Open(ctx, Options{URL: "redis://" + l.Addr().String(), Options: proxy.Options{Notices: noNotices{}, Timeout: time.Hour}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Open after its context was cancelled: %v; want context.Canceled", err)
	}
}

func TestUserNeedsOnlyDocumentedRights(t *testing.T) {
	s := stores.Redis(t)
	c := clientOf(t, s.Addr)
	set := func(rules ...any) {
		t.Helper()
		must(t, c.Do(t.Context(), append([]any{"ACL", "SETUSER", "locks", "reset", "on", ">pw"}, rules...)...).Err())
	}
	set("~simba:*", "&simba*", "+@all", "-@dangerous", "+info")
	mentions(t, opened(t, "redis://locks:pw@"+s.Addr), "NOPERM", "&simba:{*}[:]*", "does not show its settings")
	set("~simba:*", "&simba*", "&simba:{*", "&simba:{*}[:]*", "&simba-events:{*", "+@all", "-@dangerous", "+info")
	if log := opened(t, "redis://locks:pw@"+s.Addr); strings.Contains(log, "contenders") {
		t.Errorf("Open with the documented user logs a warning: %s", log)
	}
	b := serve(t, "redis://locks:pw@"+s.Addr, noNotices{})
	acquire(t, b, "m", "a", time.Minute, nil)
	w := newWaiter()
	acquire(t, b, "m", "b", time.Minute, w)
	release(t, b, "m", "a")
	w.await(t)

	set("~simba:*", "&other*", "+@all", "-@dangerous", "+info")
	mentions(t, refused(t, "redis://locks:pw@"+s.Addr), "NOPERM")
	set("~other:*", "&simba*", "+@all", "-@scripting")
	mentions(t, refused(t, "redis://locks:pw@"+s.Addr), "NOPERM", "&simba*")
}

func TestTLSIsUsedAndVerified(t *testing.T) {
	_, secure, files := redisTLS(t)
	b := serve(t, "rediss://"+secure+files, noNotices{})
	wants(t, simba.StatusAcquired, b, "m", "a")
	mentions(t, refused(t, "rediss://"+secure), "certificate")
	mentions(t, refused(t, "rediss://"+secure+files+"&tls-server-name=other"), "other")
}

// redisTLS starts a Redis that demands certificates. It returns its TLS address, and the options of
// a url that has them.
func redisTLS(t *testing.T) (s *stores.Server, addr, options string) {
	t.Helper()
	dir, port := t.TempDir(), strconv.Itoa(stores.FreePort(t))
	authority := certs.NewAuthority(t, "test CA")
	ca := authority.Write(t, dir, "ca")
	cert, key := authority.Sign(t, certs.Leaf{}).Write(t, dir, "redis")
	s = stores.Redis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
	return s, net.JoinHostPort("127.0.0.1", port), fmt.Sprintf("?tls-ca=%s&tls-cert=%s&tls-key=%s", ca, cert, key)
}
