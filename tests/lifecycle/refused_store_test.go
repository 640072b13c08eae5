package lifecycle

import (
	"database/sql"
	"fmt"
	"log"
	"net"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/go-zookeeper/zk"
	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// secret is the password in these tests. No log line may contain it.
const secret = "open-sesame"

// unserved starts a server with a store that it must refuse. The server must log one line with all
// texts of why, and exit with code 1.
func unserved(t *testing.T, why []string, args ...string) {
	t.Helper()
	// On a busy machine, a store may reply only after seconds.
	s := simbatest.Launch(t, append([]string{"--addr", "127.0.0.1:0", "--backend-timeout", "20s"}, args...)...)
	if code := s.Wait(t); code != 1 {
		t.Errorf("the server exits with code %d, want 1", code)
	}
	log := strings.TrimSpace(s.Output())
	if strings.Count(log, "\n") > 0 || strings.Contains(log, secret) {
		t.Errorf("the server logs:\n%s\nwant one line without the password", log)
	}
	for _, want := range why {
		if !strings.Contains(log, want) {
			t.Errorf("the server logs:\n%s\nwant %q in it", log, want)
		}
	}
}

// inVain returns the flags of a test case. In a case without an answer of the store, the timeout is
// short.
func inVain(name string) []string {
	if strings.HasPrefix(name, "nobody ") {
		return []string{"--backend-timeout", "2s"}
	}
	return nil
}

// unheard returns an address where nothing listens. Its socket reserves the address until the test
// ends.
func unheard(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", name.(*syscall.SockaddrInet4).Port)
}

// silent returns an address where a server accepts connections, but never replies.
func silent(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

func TestARedisThatCannotKeepLocksIsRefused(t *testing.T) {
	closed := stores.Redis(t, "--requirepass", secret)
	evicting := stores.Redis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	primary := stores.Redis(t)
	host, port, _ := net.SplitHostPort(primary.Addr)
	replica := stores.Redis(t, "--replicaof", host, port)
	admin := goredis.NewClient(&goredis.Options{Addr: primary.Addr})
	defer admin.Close()
	if err := admin.ACLSetUser(t.Context(), "clerk", "on", ">"+secret, "~*", "&*", "+@read", "+ping", "+info", "+role", "+config|get").Err(); err != nil {
		t.Fatal(err)
	}

	for name, c := range map[string]struct {
		url  string
		want []string
	}{
		"nobody listens":     {"redis://:" + secret + "@" + unheard(t), []string{"redis", "connection refused"}},
		"nobody answers":     {"redis://:" + secret + "@" + silent(t), []string{"redis"}},
		"no such scheme":     {"http://user:" + secret + "@" + primary.Addr, []string{"redis"}},
		"no address":         {"redis://", []string{"redis"}},
		"no such parameter":  {"redis://" + primary.Addr + "?colour=red", []string{"colour"}},
		"no such database":   {"redis://" + primary.Addr + "/99", []string{"DB index is out of range"}},
		"NOAUTH":             {"redis://" + closed.Addr, []string{"NOAUTH"}},
		"wrong password":     {"redis://user:" + secret + "-not@" + closed.Addr, []string{"WRONGPASS"}},
		"no permission":      {"redis://clerk:" + secret + "@" + primary.Addr, []string{"NOPERM"}},
		"a replica":          {"redis://" + replica.Addr, []string{"replica"}},
		"eviction":           {"redis://" + evicting.Addr, []string{"allkeys-lru", "noeviction"}},
		"no such Sentinel":   {"redis+sentinel://" + unheard(t) + "/mymaster", []string{"redis"}},
		"no cluster":         {"redis+cluster://" + primary.Addr, []string{"cluster"}},
		"no TLS":             {"rediss://" + primary.Addr, []string{"redis"}},
		"no such file of CA": {"rediss://" + primary.Addr + "?tls-ca=/nowhere/ca.pem", []string{"/nowhere/ca.pem"}},
	} {
		t.Run(name, func(t *testing.T) {
			unserved(t, c.want, append(inVain(name), "--engine", "redis", "--redis-url", c.url)...)
		})
	}
}

func TestADatabaseThatCannotKeepLocksIsRefused(t *testing.T) {
	store := stores.MariaDB(t)
	db, err := sql.Open("mysql", "root@tcp("+store.Addr+")/")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, statement := range []string{
		"CREATE USER simba@'%' IDENTIFIED BY '" + secret + "'", "GRANT ALL ON simba.* TO simba@'%'",
		"CREATE USER clerk@'%' IDENTIFIED BY '" + secret + "'", "GRANT SELECT ON simba.* TO clerk@'%'",
		"CREATE DATABASE wrong", "GRANT ALL ON wrong.* TO simba@'%'", "CREATE TABLE wrong.simba_mutex (mutex VARCHAR(66) PRIMARY KEY)",
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	dsn := func(user, password, addr, database string) string {
		c := mysql.NewConfig()
		c.User, c.Passwd, c.Net, c.Addr, c.DBName = user, password, "tcp", addr, database
		return c.FormatDSN()
	}
	for name, c := range map[string]struct {
		dsn  string
		want []string
	}{
		"nobody listens":   {dsn("simba", secret, unheard(t), "simba"), []string{"database at 127.0.0.1:", "connection refused"}},
		"nobody answers":   {dsn("simba", secret, silent(t), "simba"), []string{"database at 127.0.0.1:"}},
		"no DSN":           {"mysql://simba:" + secret + "@" + store.Addr + "/simba", []string{"invalid DSN", "user:password@tcp(host:3306)/database"}},
		"no database":      {dsn("simba", secret, store.Addr, ""), []string{"database"}},
		"unknown database": {dsn("simba", secret, store.Addr, "nowhere"), []string{"nowhere"}},
		"wrong password":   {dsn("simba", secret+"-not", store.Addr, "simba"), []string{"refuses user", "password"}},
		"missing table":    {dsn("simba", secret, store.Addr, "simba"), []string{"simba_mutex", "--mysql-migrate"}},
		"wrong table":      {dsn("simba", secret, store.Addr, "wrong"), []string{"simba_mutex", "acquired_at"}},
	} {
		t.Run(name, func(t *testing.T) {
			unserved(t, c.want, append(inVain(name), "--engine", "mysql", "--mysql-dsn", c.dsn)...)
		})
	}
	t.Run("no permission to make the table", func(t *testing.T) {
		unserved(t, []string{"simba_mutex", "denied"}, "--engine", "mysql", "--mysql-dsn", dsn("clerk", secret, store.Addr, "simba"), "--mysql-migrate")
	})
	t.Run("read only", func(t *testing.T) {
		simbatest.Start(t, "--engine", "mysql", "--mysql-dsn", dsn("simba", secret, store.Addr, "simba"), "--mysql-migrate")
		if _, err := db.ExecContext(t.Context(), "SET GLOBAL read_only = 1"); err != nil {
			t.Fatal(err)
		}
		unserved(t, []string{"read"}, "--engine", "mysql", "--mysql-dsn", dsn("simba", secret, store.Addr, "simba"))
	})
	t.Run("no permission to write", func(t *testing.T) {
		if _, err := db.ExecContext(t.Context(), "SET GLOBAL read_only = 0"); err != nil {
			t.Fatal(err)
		}
		unserved(t, []string{"UPDATE"}, "--engine", "mysql", "--mysql-dsn", dsn("clerk", secret, store.Addr, "simba"))
	})
}

func TestAZooKeeperThatCannotKeepLocksIsRefused(t *testing.T) {
	store := stores.ZooKeeper(t)
	c, _, err := zk.Connect([]string{store.Addr}, simbatest.Patience, zk.WithLogger(log.New(discard{}, "", 0)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.AddAuth("digest", []byte("other:"+secret)); err != nil {
		t.Fatal(err)
	}
	for path, acl := range map[string][]zk.ACL{"/open": zk.WorldACL(zk.PermAll), "/closed": zk.DigestACL(zk.PermAll, "other", secret)} {
		if _, err := c.Create(path, nil, 0, acl); err != nil {
			t.Fatalf("create the node %s: %v", path, err)
		}
	}
	for name, c := range map[string]struct {
		servers string
		want    []string
	}{
		"nobody listens": {unheard(t), []string{"zookeeper"}},
		"nobody answers": {silent(t), []string{"zookeeper"}},
		"no address":     {"/simba", []string{"zookeeper"}},
		"no such chroot": {store.Addr + "/nowhere", []string{"/nowhere"}},
		"no permission":  {store.Addr + "/closed", []string{"/closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			unserved(t, c.want, append(inVain(name), "--engine", "zookeeper", "--zookeeper-servers", c.servers, "--zookeeper-auth", "digest:simba:"+secret)...)
		})
	}
	t.Run("no auth", func(t *testing.T) {
		unserved(t, []string{"digest:user:password"}, "--engine", "zookeeper", "--zookeeper-servers", store.Addr, "--zookeeper-auth", secret)
	})
	t.Run("an open chroot is served", func(t *testing.T) {
		s := simbatest.Start(t, "--engine", "zookeeper", "--zookeeper-servers", store.Addr+"/open", "--zookeeper-auth", "digest:simba:"+secret)
		if status, _ := simbatest.Acquire(t, simbatest.GoRedis(t, s), "job", "a", 10_000); status != "acquired" {
			t.Errorf("ACQUIRE returns %s, want acquired", status)
		}
		if strings.Contains(s.Output(), secret) {
			t.Errorf("the log shows the password:\n%s", s.Output())
		}
	})
}

// discard is an io.Writer that drops everything.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// While a server waits for a store that sends nothing, a signal must end it at once.
func TestASignalEndsAServerThatWaitsForItsStore(t *testing.T) {
	for engine, flags := range map[string]string{
		"redis": "--redis-url redis://%s", "mysql": "--mysql-dsn u@tcp(%s)/simba", "zookeeper": "--zookeeper-servers %s",
	} {
		t.Run(engine, func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			args := append([]string{"--addr", "127.0.0.1:0", "--engine", engine, "--backend-timeout", "24h"},
				strings.Fields(fmt.Sprintf(flags, ln.Addr()))...)
			s := simbatest.Launch(t, args...)
			asked, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer asked.Close()
			s.Signal(syscall.SIGTERM)
			s.Wait(t)
		})
	}
}
