package redis

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// cutOff ends all connections to Redis but that of c.
func cutOff(t *testing.T, c *redis.Client) {
	t.Helper()
	for _, kind := range []string{"normal", "pubsub"} {
		must(t, c.Do(t.Context(), "CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes").Err())
	}
}

func TestRenewedCertificatesAreReadAtTheNextDial(t *testing.T) {
	dir := t.TempDir()
	port := strconv.Itoa(stores.FreePort(t))
	write := func(name string, expires time.Time) (ca, cert, key, clientCert, clientKey string) {
		authority := certs.NewAuthority(t, name)
		cert, key = authority.Sign(t, certs.Leaf{Name: "redis"}).Write(t, dir, "redis")
		clientCert, clientKey = authority.Sign(t, certs.Leaf{Name: "simba", NotAfter: expires}).Write(t, dir, "client")
		return authority.Write(t, dir, "ca"), cert, key, clientCert, clientKey
	}
	first, second := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(2*time.Hour).Truncate(time.Second)
	ca, cert, key, clientCert, clientKey := write("first", first)
	s := stores.Redis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
	c := clientOf(t, s.Addr)
	log := new(conformance.Log)
	b := openSoon(t, Options{URL: fmt.Sprintf("rediss://%s?tls-ca=%s&tls-cert=%s&tls-key=%s", net.JoinHostPort("127.0.0.1", port), ca, clientCert, clientKey), Options: proxy.Options{Notices: noNotices{}, Logger: slog.New(slog.NewTextHandler(log, nil))}})
	defer b.Close()
	expires := func() string { return fmt.Sprint(b.CertificatesExpire()["redis-url tls-cert"].UTC()) }
	if got, want := expires(), fmt.Sprint(first.UTC()); got != want {
		t.Errorf("the certificate expires at %s; want %s", got, want)
	}
	if b.CertificatesExpire()["redis-url tls-ca"].Year() != 2099 {
		t.Errorf("the certificates expire at %v; want the authority in 2099", b.CertificatesExpire())
	}

	good, err := os.ReadFile(clientKey)
	must(t, err)
	must(t, os.WriteFile(clientKey, []byte("half a fi"), 0o600))
	cutOff(t, c)
	eventually(t, b, "m", "a")
	if log.Count("level=ERROR") != 1 || log.Count(clientKey) != 1 {
		t.Errorf("%d errors are logged; want one, with the file %s", log.Count("level=ERROR"), clientKey)
	}
	must(t, os.WriteFile(clientKey, good, 0o600))

	write("second", second)
	// Redis reads all its files again.
	must(t, c.ConfigSet(t.Context(), "tls-ca-cert-file", ca).Err())
	cutOff(t, c)
	if o := eventually(t, b, "m", "a"); o.Status != simba.StatusRenewed {
		t.Errorf("the owner's request after the rotation: %+v; want renewed", o)
	}
	if got, want := expires(), fmt.Sprint(second.UTC()); got != want {
		t.Errorf("after the rotation the certificate expires at %s; want %s", got, want)
	}
}

func TestRenewedPasswordIsReadAtTheNextDial(t *testing.T) {
	s := stores.Redis(t, "--requirepass", "first")
	password := "first"
	c := redis.NewClient(&redis.Options{Addr: s.Addr, CredentialsProvider: func() (string, string) { return "", password }})
	defer c.Close()
	file := filepath.Join(t.TempDir(), "url")
	set := func(password string) {
		must(t, os.WriteFile(file, []byte("redis://:"+password+"@"+s.Addr), 0o600))
	}
	set("first")
	b := openSoon(t, Options{URL: "redis://:first@" + s.Addr, Reread: func() (string, error) {
		text, err := os.ReadFile(file)
		return string(text), err
	}, Options: proxy.Options{Notices: noNotices{}}})
	defer b.Close()
	acquire(t, b, "m", "a", time.Minute, nil)
	must(t, c.ConfigSet(t.Context(), "requirepass", "second").Err())
	cutOff(t, c)
	until(t, "a request is refused", func() bool {
		err := begin(b, "other", "b")
		refusal := (*simba.MisconfiguredError)(nil)
		if errors.As(err, &refusal) {
			mustBeMisconfigured(t, "ACQUIRE with the old password", err, "WRONGPASS")
		}
		return refusal != nil
	})
	set("second")
	if o := eventually(t, b, "m", "a"); o.Status != simba.StatusRenewed {
		t.Errorf("the owner's request after the rotation: %+v; want renewed", o)
	}
}
