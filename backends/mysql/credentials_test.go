package mysql

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/backends/proxy"
	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

// awaitRenewal cuts the engine's connections off and waits until the owner has renewed its lease.
func awaitRenewal(t *testing.T, b *Backend, user string, store *stores.Server) {
	t.Helper()
	must(t, direct(t, store, ""), "KILL USER "+user)
	conformance.AwaitRenewal(t, b)
}

func TestRenewedCertificatesAreReadAtTheNextDial(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, expires time.Time) (ca, cert, key, clientCert, clientKey string) {
		authority := certs.NewAuthority(t, name)
		cert, key = authority.Sign(t, certs.Leaf{Name: "db"}).Write(t, dir, "db")
		clientCert, clientKey = authority.Sign(t, certs.Leaf{Name: "simba", NotAfter: expires}).Write(t, dir, "client")
		return authority.Write(t, dir, "ca"), cert, key, clientCert, clientKey
	}
	first, second := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(2*time.Hour).Truncate(time.Second)
	ca, cert, key, clientCert, clientKey := write("first", first)
	store := stores.MariaDB(t, "--ssl-ca="+ca, "--ssl-cert="+cert, "--ssl-key="+key)
	db := direct(t, store, "")
	must(t, db, "CREATE USER secured REQUIRE X509")
	must(t, db, "GRANT ALL ON simba.* TO secured")
	b := openSoon(t, Options{DSN: fmt.Sprintf("secured@tcp(%s)/simba?tls-ca=%s&tls-cert=%s&tls-key=%s&timeout=3s", store.Addr, ca, clientCert, clientKey), Migrate: true, Options: proxy.Options{Notices: conformance.NewBroker()}})
	defer b.Close()
	take(t, b, "m", "a", time.Minute)
	if got := b.CertificatesExpire()["mysql-dsn tls-cert"]; !got.Equal(first) {
		t.Errorf("the certificate expires at %v; want %v", got, first)
	}
	write("second", second)
	must(t, db, "FLUSH SSL")
	awaitRenewal(t, b, "secured", store)
	if got := b.CertificatesExpire()["mysql-dsn tls-cert"]; !got.Equal(second) {
		t.Errorf("after the rotation the certificate expires at %v; want %v", got, second)
	}
}

func TestRenewedPasswordIsReadAtTheNextDial(t *testing.T) {
	store := stores.MariaDB(t)
	db := direct(t, store, "")
	must(t, db, "CREATE USER locks IDENTIFIED BY 'first'")
	must(t, db, "GRANT ALL ON simba.* TO locks")
	file := filepath.Join(t.TempDir(), "dsn")
	set := func(password string) string {
		dsn := "locks:" + password + "@tcp(" + store.Addr + ")/simba"
		if err := os.WriteFile(file, []byte(dsn), 0o600); err != nil {
			t.Fatal(err)
		}
		return dsn
	}
	b := openSoon(t, Options{DSN: set("first"), Migrate: true, Reread: func() (string, error) {
		text, err := os.ReadFile(file)
		return string(text), err
	}, Options: proxy.Options{Notices: conformance.NewBroker()}})
	defer b.Close()
	take(t, b, "m", "a", time.Minute)
	must(t, db, "SET PASSWORD FOR locks = PASSWORD('second')")
	set("second")
	awaitRenewal(t, b, "locks", store)
}

func TestTLSFilesOfTheDSN(t *testing.T) {
	ca := certs.NewAuthority(t, "ca").Write(t, t.TempDir(), "ca")
	cfg, err := parseDSN(Options{DSN: "u:p/?&w@tcp(db:3306)/simba?timeout=2s&tls-ca=" + ca + "&readTimeout=1s"})
	noError(t, err)
	if cfg.Passwd != "p/?&w" || cfg.DBName != "simba" || cfg.Timeout != 2*time.Second || cfg.ReadTimeout != time.Second ||
		cfg.TLS == nil || cfg.TLS.RootCAs == nil || cfg.TLS.ServerName != "db" {
		t.Errorf("the DSN means %+v", cfg)
	}
	for params, want := range map[string]string{
		"tls-ca=/does/not/exist": "mysql-dsn tls-ca: open /does/not/exist: no such file or directory",
		"tls-key=" + ca:          "mysql-dsn tls-cert and mysql-dsn tls-key are needed together",
	} {
		if _, err := parseDSN(Options{DSN: "u@tcp(db)/simba?" + params}); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want the error %q", params, err, want)
		}
	}
}
