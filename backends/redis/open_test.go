package redis

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp"
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
	b, err := Open(t.Context(), Options{URL: url, Notices: noNotices{}, Timeout: timeout})
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

func TestOpenRefusesEvictionUnlessAllowed(t *testing.T) {
	s := stores.Redis(t, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru")
	mentions(t, refused(t, "redis://"+s.Addr), "volatile-lru", "noeviction", "allow-eviction")
	if log := opened(t, "redis://"+s.Addr+"?allow-eviction=true"); !strings.Contains(log, "volatile-lru") {
		t.Errorf("Open logs no warning of the eviction policy: %s", log)
	}
	harmless := stores.Redis(t, "--maxmemory-policy", "allkeys-lru")
	mentions(t, opened(t, "redis://"+harmless.Addr), "allkeys-lru")
}

func opened(t *testing.T, url string) string {
	t.Helper()
	var log bytes.Buffer
	b, err := Open(t.Context(), Options{URL: url, Notices: noNotices{}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	_ = b.Close()
	return log.String()
}

func TestOpenWarnsOfLocksThatACrashMayLose(t *testing.T) {
	mentions(t, opened(t, "redis://"+stores.Redis(t, "--appendonly", "no").Addr), "append only file")
	mentions(t, opened(t, "redis://"+stores.Redis(t, "--appendfsync", "everysec").Addr), "everysec")
	if log := opened(t, "redis://"+stores.Redis(t, "--appendfsync", "always").Addr); log != "" {
		t.Errorf("Open logs a warning without a reason: %s", log)
	}
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
	_, err = Open(ctx, Options{URL: "redis://" + l.Addr().String(), Notices: noNotices{}, Timeout: time.Hour})
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
	mentions(t, opened(t, "redis://locks:pw@"+s.Addr), "NOPERM", "&simba:{*}[:]*")
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
	dir := t.TempDir()
	cert, key := selfSigned(t, dir)
	port := strconv.Itoa(stores.FreePort(t))
	secure := net.JoinHostPort("127.0.0.1", port)
	stores.Redis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	b := serve(t, fmt.Sprintf("rediss://%s?tls-ca=%s&tls-cert=%s&tls-key=%s", secure, cert, cert, key), noNotices{})
	if o, _ := acquire(t, b, "m", "a", time.Minute, nil); o.Status != simba.StatusAcquired {
		t.Errorf("ACQUIRE over TLS: %+v; want acquired", o)
	}
	mentions(t, refused(t, "rediss://"+secure), "certificate")
	mentions(t, refused(t, fmt.Sprintf("rediss://%s?tls-ca=%s&tls-cert=%s&tls-key=%s&tls-server-name=other", secure, cert, cert, key)), "other")
}

func selfSigned(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "simba"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &k.PublicKey, k)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(k)
	must(t, err)
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: private},
	} {
		must(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
	}
	return cert, key
}
