package postgres

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/credentials"
	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
)

func TestOpenNamesWhatIsWrong(t *testing.T) {
	store := stores.Postgres(t)
	b := serve(t, store.Addr, nil)
	_ = b
	direct(t, store, "CREATE ROLE locks LOGIN PASSWORD 'geheim'; GRANT SELECT, INSERT, UPDATE, DELETE ON simba_mutex TO locks; GRANT USAGE ON SEQUENCE simba_token TO locks")
	direct(t, store, "CREATE DATABASE narrow ENCODING 'LATIN1' TEMPLATE template0")
	as := func(role, database string) string {
		return "postgres://" + role + ":geheim@" + store.Addr + "/" + database + "?sslmode=disable"
	}
	for name, c := range map[string]struct{ harm, mend, url, want string }{
		"no server":     {url: "postgres://locks:geheim@127.0.0.1:1/postgres", want: "cannot reach the database"},
		"no URL":        {url: "postgres://locks:geheim@127.0.0.1:port/postgres", want: "invalid postgres-url: expected postgres://"},
		"no CA":         {url: as("locks", "postgres") + "&sslmode=verify-ca&sslrootcert=/does/not/exist", want: "/does/not/exist"},
		"no TLS":        {url: as("locks", "postgres") + "&sslmode=require", want: "cannot reach the database"},
		"no role":       {url: as("nobody", "postgres"), want: "refuses the connection"},
		"no database":   {url: as("locks", "elsewhere"), want: `database "elsewhere" does not exist`},
		"encoding":      {url: as("locks", "narrow"), want: "encoding of the database is LATIN1"},
		"no table":      {harm: "ALTER TABLE simba_mutex RENAME TO away", mend: "ALTER TABLE away RENAME TO simba_mutex", want: "no table simba_mutex"},
		"no sequence":   {harm: "ALTER SEQUENCE simba_token RENAME TO away", mend: "ALTER SEQUENCE away RENAME TO simba_token", want: "no sequence simba_token"},
		"a view":        {harm: "ALTER TABLE simba_mutex RENAME TO away; CREATE VIEW simba_mutex AS SELECT * FROM away", mend: "DROP VIEW simba_mutex; ALTER TABLE away RENAME TO simba_mutex", want: "not an ordinary table"},
		"unlogged":      {harm: "ALTER TABLE simba_mutex SET UNLOGGED", mend: "ALTER TABLE simba_mutex SET LOGGED", want: "does not survive a crash"},
		"cache":         {harm: "ALTER SEQUENCE simba_token CACHE 10", mend: "ALTER SEQUENCE simba_token CACHE 1", want: "ALTER SEQUENCE simba_token INCREMENT 1 CACHE 1 NO CYCLE"},
		"no UPDATE":     {harm: "REVOKE UPDATE ON simba_mutex FROM locks", mend: "GRANT UPDATE ON simba_mutex TO locks", want: `GRANT UPDATE ON simba_mutex TO "locks"`},
		"no USAGE":      {harm: "REVOKE USAGE ON SEQUENCE simba_token FROM locks", mend: "GRANT USAGE ON SEQUENCE simba_token TO locks", want: `GRANT USAGE ON SEQUENCE simba_token TO "locks"`},
		"collation":     {harm: `ALTER TABLE simba_mutex ALTER COLUMN owner_id TYPE text COLLATE "default"`, mend: `ALTER TABLE simba_mutex ALTER COLUMN owner_id TYPE text COLLATE "C"`, want: `owner_id text COLLATE "default"`},
		"other columns": {harm: "ALTER TABLE simba_mutex ALTER COLUMN mark TYPE int", mend: "ALTER TABLE simba_mutex ALTER COLUMN mark TYPE bigint", want: "mark integer"},
		"no key":        {harm: "ALTER TABLE simba_mutex DROP CONSTRAINT simba_mutex_pkey", mend: "ALTER TABLE simba_mutex ADD PRIMARY KEY (mutex)", want: "not its primary key"},
	} {
		if c.harm != "" {
			direct(t, store, c.harm)
		}
		if c.url == "" {
			c.url = as("locks", "postgres")
		}
		o := options(store.Addr)
		o.URL, o.Migrate, o.Timeout = c.url, false, 10*time.Second
		own, err := Open(t.Context(), o)
		if err == nil {
			_ = own.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v; want one line with %q", name, err, c.want)
		}
		if c.mend != "" {
			direct(t, store, c.mend)
		}
	}
	o := options(store.Addr)
	o.URL, o.Migrate = as("locks", "postgres"), true // nothing is missing
	own := openSoon(t, o)
	defer own.Close()
	take(t, own, "m", "a", long)
	release(t, own, "m", "a")
	own.store.deleteFree(t.Context(), 0)
	if faults := own.Faults(); len(faults) > 0 {
		t.Errorf("the faults of a good database: %v", faults)
	}
}

func TestTheGuideHasTheSchema(t *testing.T) {
	page, err := os.ReadFile("../../docs/guides/postgres.md")
	noError(t, err)
	if _, statements, _ := strings.Cut(Schema, "CREATE TABLE"); !strings.Contains(string(page), "CREATE TABLE"+statements) {
		t.Error("docs/guides/postgres.md has other statements than init-simba-postgres.sql")
	}
}

func TestSettingsThatAreNotDurableAreWarnedOf(t *testing.T) {
	b := serve(t, stores.Postgres(t, "-c", "fsync=off", "-c", "full_page_writes=off").Addr, nil)
	var got []string
	for _, f := range b.Faults() {
		got = append(got, f.Setting)
	}
	if want := "[fsync full_page_writes]"; fmt.Sprint(got) != want {
		t.Errorf("the warnings are %v, want %s", got, want)
	}
}

func TestServersMayMigrateAtTheSameTime(t *testing.T) {
	store := stores.Postgres(t)
	opened := make(chan error)
	for range 8 {
		go func() {
			b, err := Open(t.Context(), options(store.Addr))
			if err == nil {
				err = b.Close()
			}
			opened <- err
		}()
	}
	for range 8 {
		noError(t, <-opened)
	}
}

// awaitRenewal ends the engine's connections and waits until the owner has renewed its lease.
func awaitRenewal(t *testing.T, b *Backend, role string, store *stores.Server) {
	t.Helper()
	direct(t, store, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '"+role+"'")
	conformance.AwaitRenewal(t, b)
}

func TestRenewedPasswordIsReadAtTheNextDial(t *testing.T) {
	store := stores.Postgres(t)
	serve(t, store.Addr, nil)
	direct(t, store, "CREATE ROLE locks LOGIN SUPERUSER PASSWORD 'first'")
	hba := direct(t, store, "SHOW hba_file")
	if err := os.WriteFile(hba, []byte("host all postgres 127.0.0.1/32 trust\nhost all locks 127.0.0.1/32 scram-sha-256\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	direct(t, store, "SELECT pg_reload_conf()")
	file := filepath.Join(t.TempDir(), "pass")
	set := func(password string) {
		if err := os.WriteFile(file, []byte("*:*:*:locks:"+password+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set("first")
	o := options(store.Addr)
	o.URL = "postgres://locks@" + store.Addr + "/postgres?sslmode=disable&passfile=" + file
	b := openSoon(t, o)
	defer b.Close()
	take(t, b, "m", "a", time.Minute)
	direct(t, store, "ALTER ROLE locks PASSWORD 'second'")
	set("second")
	awaitRenewal(t, b, "locks", store)
}

func TestRenewedCertificatesAreReadAtTheNextDial(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, expires time.Time) (ca, cert, key, clientCert, clientKey string) {
		authority := certs.NewAuthority(t, name)
		cert, key = authority.Sign(t, certs.Leaf{Name: "db"}).Write(t, dir, "db")
		clientCert, clientKey = authority.Sign(t, certs.Leaf{Name: "simba", NotAfter: expires}).Write(t, dir, "client")
		return authority.Write(t, dir, "ca"), cert, key, clientCert, clientKey
	}
	first, second := time.Now().Add(time.Hour).Truncate(time.Second), time.Now().Add(2*time.Hour).Truncate(time.Second)
	ca, cert, key, clientCert, clientKey := write("first", first)
	store := stores.Postgres(t)
	serve(t, store.Addr, nil)
	data := direct(t, store, "SHOW data_directory")
	install := func() {
		for from, to := range map[string]string{ca: "root.crt", cert: "server.crt", key: "server.key"} {
			text, err := os.ReadFile(from)
			noError(t, err)
			to = filepath.Join(data, to)
			noError(t, os.WriteFile(to, text, 0o600))
			if os.Geteuid() == 0 {
				noError(t, os.Chown(to, 65534, 65534))
			}
		}
	}
	install()
	direct(t, store, "CREATE ROLE secured LOGIN SUPERUSER")
	noError(t, os.WriteFile(direct(t, store, "SHOW hba_file"), []byte("host all postgres 127.0.0.1/32 trust\nhostssl all secured 127.0.0.1/32 trust clientcert=verify-ca\n"), 0o644))
	for _, statement := range []string{"ALTER SYSTEM SET ssl = on", "ALTER SYSTEM SET ssl_ca_file = 'root.crt'", "SELECT pg_reload_conf()"} {
		direct(t, store, statement)
	}
	o := options(store.Addr)
	o.URL = fmt.Sprintf("postgres://secured@%s/postgres?sslmode=verify-ca&sslrootcert=%s&sslcert=%s&sslkey=%s", store.Addr, ca, clientCert, clientKey)
	b := openSoon(t, o)
	defer b.Close()
	take(t, b, "m", "a", time.Minute)
	if got := b.CertificatesExpire()["postgres-url sslcert"]; !got.Equal(first) {
		t.Errorf("the certificate expires at %v; want %v", got, first)
	}
	write("second", second)
	install()
	direct(t, store, "SELECT pg_reload_conf()")
	awaitRenewal(t, b, "secured", store)
	if got := b.CertificatesExpire()["postgres-url sslcert"]; !got.Equal(second) {
		t.Errorf("after the rotation the certificate expires at %v; want %v", got, second)
	}
}

// The engine must be there before the first connection: see proxy.Hooks.
func TestPoolConnectsOnlyWhenItIsUsed(t *testing.T) {
	config, err := parseURL("url", "postgres://h/d?pool_min_conns=3&pool_min_idle_conns=3", time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	source, err := credentials.Open(credentials.Config[target]{Parse: func(string) (target, error) { return config, nil }})
	if err != nil {
		t.Fatal(err)
	}
	pool, err := openPool(source, func() {})
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if c := pool.Config(); c.MinConns != 0 || c.MinIdleConns != 0 {
		t.Errorf("the pool opens %d and %d connections by itself, want none", c.MinConns, c.MinIdleConns)
	}
}
