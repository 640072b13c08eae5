package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/need"
)

// wired is an app in fake time, with its log.
type wired struct {
	*app
	t   *testing.T
	dir string // a directory of the test
	log *bytes.Buffer
}

// connect connects a client over a pipe, which works in fake time.
func (w *wired) connect() redis.Conn {
	w.t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		w.server.ServeConn(theirs)
	}()
	w.t.Cleanup(func() {
		ours.Close()
		<-served
	})
	return redis.NewConn(ours, 0, 0)
}

// must returns the reply of a command.
func (w *wired) must(c redis.Conn, command string, args ...any) any {
	w.t.Helper()
	reply, err := c.Do(command, args...)
	if err != nil {
		w.t.Fatalf("%s %v: %v", command, args, err)
	}
	return reply
}

// get returns the status and the body of a GET.
func (w *wired) get(path string) (status int, body string) {
	w.t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Get("http://" + w.httpLn.Addr().String() + path)
	must(w.t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	must(w.t, err)
	return reply.StatusCode, string(text)
}

// acquire returns the status and the token in the reply of SIMBA.ACQUIRE.
func (w *wired) acquire(c redis.Conn, contender string, ttl time.Duration) (status string, token uint64) {
	w.t.Helper()
	record, err := redis.Values(w.must(c, "SIMBA.ACQUIRE", "job", contender, ttl.Milliseconds()), nil)
	must(w.t, err)
	var name, owner string
	if _, err := redis.Scan(record, &name, &status, &name, &owner, &name, &token); err != nil {
		w.t.Fatal(err)
	}
	return status, token
}

// wiring checks that a flag's value has reached the running parts.
type wiring struct {
	flag   string
	args   string // $dir is a directory of the test's own
	effect func(*wired)
}

// tlsArgs are all TLS flags. The files are in $dir.
const tlsArgs = "--tls-addr 127.0.0.2:0 --tls-cert-file $dir/server.crt --tls-key-file $dir/server.key " +
	"--tls-ca-cert-file $dir/ca.crt --tls-auth-clients optional --tls-min-version 1.3"

var wirings = []wiring{
	{"addr", "--addr 127.0.0.2:0", func(w *wired) {
		if got := w.ln.Addr().String(); !strings.HasPrefix(got, "127.0.0.2:") {
			w.t.Errorf("the server listens on %s, want 127.0.0.2", got)
		}
	}},
	{"requirepass", "--requirepass sesame", askedForPassword},
	{"requirepass-file", "--requirepass-file $dir/password", askedForPassword},
	{"aclfile", "--aclfile $dir/users", func(w *wired) {
		askedForPassword(w)
		clerk := w.connect()
		w.must(clerk, "AUTH", "clerk", "pen")
		if _, err := clerk.Do("SIMBA.BREAK", "m"); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			w.t.Errorf("BREAK by a user without the right returned %v, want NOPERM", err)
		}
	}},
	{"unixsocket", "--addr= --unixsocket $dir/s", func(w *wired) {
		if got := w.unixLn.Addr().String(); got != w.dir+"/s" || w.ln != nil {
			w.t.Errorf("the server listens on the socket %s, and on %v; want the socket %s/s only", got, w.ln, w.dir)
		}
	}},
	{"unixsocketperm", "--addr= --unixsocket $dir/s --unixsocketperm 0751", func(w *wired) {
		if info, err := os.Stat(w.dir + "/s"); err != nil || info.Mode() != os.ModeSocket|0o751 {
			w.t.Errorf("the unix socket has mode %v (error %v), want 0751", info.Mode(), err)
		}
	}},
	{"http-addr", "--http-addr 127.0.0.2:0", func(w *wired) {
		if got := w.httpLn.Addr().String(); !strings.HasPrefix(got, "127.0.0.2:") {
			w.t.Errorf("the server listens on %s, want 127.0.0.2", got)
		}
		if status, _ := w.get("/debug/pprof/"); status != http.StatusNotFound {
			w.t.Errorf("without --http-pprof, the status of /debug/pprof/ is %d, want 404", status)
		}
	}},
	{"http-pprof", "--http-addr 127.0.0.1:0 --http-pprof", func(w *wired) {
		if status, _ := w.get("/debug/pprof/"); status != http.StatusOK {
			w.t.Errorf("with --http-pprof, the status of /debug/pprof/ is %d, want 200", status)
		}
	}},
	{"metrics-mutexes", "--http-addr 127.0.0.1:0 --metrics-mutexes jo*", func(w *wired) {
		w.acquire(w.connect(), "a", time.Hour)
		if _, text := w.get("/metrics"); !strings.Contains(text, `simba_mutex_held{mutex="job"} 1`) {
			w.t.Error("/metrics has no series of the mutex job")
		}
	}},
	{"insecure", "--addr 0.0.0.0:0 --insecure", func(w *wired) {
		w.must(w.connect(), "PING")
	}},
	{"tls-addr", tlsArgs, func(w *wired) {
		if got := w.tlsLn.Addr().String(); !strings.HasPrefix(got, "127.0.0.2:") {
			w.t.Errorf("the server listens on %s, want 127.0.0.2", got)
		}
	}},
	{"tls-cert-file", tlsArgs, func(w *wired) {
		if got := w.certs.current.Load(); got.leaf().Subject.String() != "CN=server" || len(got.config.Certificates) != 1 {
			w.t.Errorf("the server has %d certificates, the first of %s; want one of CN=server", len(got.config.Certificates), got.leaf().Subject)
		}
	}},
	{"tls-key-file", tlsArgs, func(w *wired) {
		if w.certs.current.Load().config.Certificates[0].PrivateKey == nil {
			w.t.Error("the server has no key")
		}
	}},
	{"tls-ca-cert-file", tlsArgs, func(w *wired) {
		if w.certs.current.Load().config.ClientCAs == nil {
			w.t.Error("the server has no authority for client certificates")
		}
	}},
	{"tls-auth-clients", tlsArgs, func(w *wired) {
		if got := w.certs.current.Load().config.ClientAuth; got != tls.VerifyClientCertIfGiven {
			w.t.Errorf("ClientAuth is %v, want VerifyClientCertIfGiven", got)
		}
	}},
	{"tls-min-version", tlsArgs, func(w *wired) {
		if got := w.certs.current.Load().config.MinVersion; got != tls.VersionTLS13 {
			w.t.Errorf("the oldest version of TLS is %s, want 1.3", tls.VersionName(got))
		}
	}},
	{"data-dir", "--data-dir $dir/elsewhere", func(w *wired) {
		if files, err := os.ReadDir(filepath.Join(w.dir, "elsewhere")); err != nil || len(files) == 0 {
			w.t.Errorf("the data directory has the files %v (error %v), want at least one", files, err)
		}
	}},
	{"durability", "--durability always", func(w *wired) {
		c := w.connect()
		w.acquire(c, "a", time.Hour)
		info, err := redis.String(c.Do("INFO", "persistence"))
		if err != nil || !strings.Contains(info, "store_commits:") || strings.Contains(info, "store_commits:0\r") {
			w.t.Errorf("INFO persistence returned %q (error %v), want store_commits above 0", info, err)
		}
	}},
	{"durability", "--durability memory", func(w *wired) {
		c := w.connect()
		// Tokens must be larger than those of earlier runs, which have stored nothing. So they
		// begin with the wall clock in microseconds.
		_, token := w.acquire(c, "a", time.Hour)
		if began := uint64(time.Now().UnixMicro()); token < began || token > began+1000 {
			w.t.Errorf("the first token is %d, want the time %d in microseconds, or slightly more", token, began)
		}
		events, err := redis.Values(c.Do("SIMBA.HISTORY", "job"))
		if err != nil || len(events) != 1 {
			w.t.Fatalf("SIMBA.HISTORY returned %v, %v; want one event", events, err)
		}
		var name string
		var seq int64
		if first, err := redis.Values(events[0], nil); err != nil {
			w.t.Error(err)
		} else if _, err := redis.Scan(first, &name, &seq); err != nil || seq < time.Now().UnixMicro() {
			w.t.Errorf("the first event has %s %d (error %v), want at least the time in microseconds", name, seq, err)
		}
		if info, err := redis.String(c.Do("INFO", "persistence")); err != nil || strings.Contains(info, "store_") {
			w.t.Errorf("INFO persistence returned %q (error %v), want no field of a store", info, err)
		}
	}},
	{"recovery-delay", "--recovery-delay 7h", func(w *wired) {
		if got := w.engine.Stats().RecoveryDelay; got < 6*time.Hour || got > 7*time.Hour { // real time has passed
			w.t.Errorf("the recovery delay of a new data directory is %v, want 7h", got)
		}
	}},
	{"recovery-delay", "--durability memory --recovery-delay 7s", func(w *wired) {
		c := w.connect()
		time.Sleep(7*time.Second - time.Nanosecond)
		if status, _ := w.acquire(c, "a", time.Hour); status != "queued" {
			w.t.Errorf("during the recovery delay the status is %s, want queued", status)
		}
		time.Sleep(time.Nanosecond)
		if status, _ := w.acquire(c, "a", time.Hour); status != "acquired" {
			w.t.Errorf("after the recovery delay the status is %s, want acquired", status)
		}
	}},
	{"handoff-window", "--durability memory --handoff-window 7s", func(w *wired) {
		c, sub := w.connect(), redis.PubSubConn{Conn: w.connect()}
		must(w.t, sub.Subscribe("simba:{job}:b"))
		sub.Receive()
		w.acquire(c, "a", time.Hour)
		w.acquire(c, "b", time.Hour)
		go sub.Receive() // until the connection ends
		w.must(c, "SIMBA.RELEASE", "job", "a")
		time.Sleep(7*time.Second - time.Nanosecond)
		if status, _ := w.acquire(c, "c", time.Hour); status != "queued" {
			w.t.Errorf("while the mutex is reserved for b, the status of c is %s, want queued", status)
		}
		time.Sleep(time.Nanosecond)
		if status, _ := w.acquire(c, "c", time.Hour); status != "acquired" {
			w.t.Errorf("after b's reservation the status of c is %s, want acquired", status)
		}
	}},
	{"queue-grace", "--durability memory --queue-grace 7s", func(w *wired) {
		c := w.connect()
		w.acquire(c, "a", time.Minute)
		w.acquire(c, "b", time.Minute)
		time.Sleep(time.Minute + 7*time.Second - time.Nanosecond)
		if n := w.engine.Stats().Polling; n != 1 {
			w.t.Errorf("%d waiters before the end of the grace, want 1", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := w.engine.Stats().Polling; n != 0 {
			w.t.Errorf("%d waiters after the end of the grace, want 0", n)
		}
	}},
	{"legacy-simba-channels", "--durability memory --legacy-simba-channels=true", func(w *wired) {
		c, sub := w.connect(), redis.PubSubConn{Conn: w.connect()}
		must(w.t, sub.Subscribe("simba:job:b"))
		sub.Receive()
		w.acquire(c, "a", time.Hour)
		w.acquire(c, "b", time.Hour)
		w.must(c, "SIMBA.RELEASE", "job", "a")
		if got, ok := sub.Receive().(redis.Message); !ok || string(got.Data) != "released@@a" {
			w.t.Errorf("b received %v on its channel without braces, want released@@a", got)
		}
	}},
	{"maxclients", "--maxclients 1", func(w *wired) {
		w.must(w.connect(), "PING")
		if _, err := redis.ReceiveWithTimeout(w.connect(), need.Hang); err == nil || err.Error() != "ERR max number of clients reached" {
			w.t.Errorf("the second client got %v, want that the limit is reached", err)
		}
	}},
	{"maxmemory", "--maxmemory 1kb", func(w *wired) {
		c := w.connect()
		for _, letter := range []string{"x", "y", "z"} {
			w.must(c, "SIMBA.ACQUIRE", strings.Repeat(letter, 255), "a", 1000)
		}
		_, err := c.Do("SIMBA.ACQUIRE", "job", "a", 1000)
		if err == nil || err.Error() != "OOM command not allowed when used memory > 'maxmemory'." {
			w.t.Errorf("SIMBA.ACQUIRE above maxmemory returned %v, want OOM", err)
		}
	}},
	{"timeout", "--durability memory --timeout 7", func(w *wired) {
		c, began := w.connect(), time.Now()
		if _, err := redis.ReceiveWithTimeout(c, time.Minute); err == nil || time.Since(began) != 7*time.Second {
			w.t.Errorf("an idle client got %v after %v, want a closed connection after 7 s", err, time.Since(began))
		}
	}},
	{"log-level", "--durability memory --log-level error", func(w *wired) {
		synctest.Wait()
		if w.log.Len() > 0 {
			w.t.Errorf("the log has lines below its level: %s", w.log)
		}
	}},
	{"log-format", "--durability memory --log-format json", func(w *wired) {
		synctest.Wait()
		if !strings.HasPrefix(w.log.String(), "{") {
			w.t.Errorf("the log is not JSON: %s", w.log)
		}
	}},
}

// storeWiring checks that a flag's value has reached the options of an engine with a store. The
// tests of the engines and the end-to-end tests check what the options do.
type storeWiring struct {
	flag, value string
	engine      string
	got         func(*app) any
}

var storeWirings = []storeWiring{
	{"redis-url", "redis://127.0.0.1:7", engineRedis, func(a *app) any { return a.redisOptions(nil).URL }},
	{"mysql-dsn", "u@tcp(127.0.0.1:7)/d", engineMySQL, func(a *app) any { return a.mysqlOptions(nil).DSN }},
	{"mysql-migrate", "true", engineMySQL, func(a *app) any { return a.mysqlOptions(nil).Migrate }},
	{"mysql-poll", "70ms", engineMySQL, func(a *app) any { return a.mysqlOptions(nil).Poll }},
	{"postgres-url", "postgres://u@127.0.0.1:7/d", enginePostgres, func(a *app) any { return a.postgresOptions(nil).URL }},
	{"postgres-listen-url", "postgres://u@127.0.0.1:8/d", enginePostgres, func(a *app) any { return a.postgresOptions(nil).ListenURL }},
	{"postgres-migrate", "true", enginePostgres, func(a *app) any { return a.postgresOptions(nil).Migrate }},
	{"zookeeper-servers", "127.0.0.1:7", engineZooKeeper, func(a *app) any { return a.zookeeperOptions(nil).Servers }},
	{"zookeeper-auth", "digest:u:p", engineZooKeeper, func(a *app) any { return a.zookeeperOptions(nil).Auth }},
	{"zookeeper-session-timeout", "7s", engineZooKeeper, func(a *app) any { return a.zookeeperOptions(nil).SessionTimeout }},
	{"backend-timeout", "7s", engineRedis, func(a *app) any { return a.redisOptions(nil).Timeout }},
	{"backend-timeout", "7s", engineMySQL, func(a *app) any { return a.mysqlOptions(nil).Timeout }},
	{"backend-timeout", "7s", enginePostgres, func(a *app) any { return a.postgresOptions(nil).Timeout }},
	{"backend-timeout", "7s", engineZooKeeper, func(a *app) any { return a.zookeeperOptions(nil).Timeout }},
	{"handoff-window", "7s", engineRedis, func(a *app) any { return a.redisOptions(nil).HandoffWindow }},
	{"handoff-window", "7s", engineMySQL, func(a *app) any { return a.mysqlOptions(nil).HandoffWindow }},
	{"handoff-window", "7s", enginePostgres, func(a *app) any { return a.postgresOptions(nil).HandoffWindow }},
	{"handoff-window", "7s", engineZooKeeper, func(a *app) any { return a.zookeeperOptions(nil).HandoffWindow }},
	{"queue-grace", "7s", engineRedis, func(a *app) any { return a.redisOptions(nil).QueueGrace }},
	{"queue-grace", "7s", engineMySQL, func(a *app) any { return a.mysqlOptions(nil).QueueGrace }},
	{"queue-grace", "7s", enginePostgres, func(a *app) any { return a.postgresOptions(nil).QueueGrace }},
	{"queue-grace", "7s", engineZooKeeper, func(a *app) any { return a.zookeeperOptions(nil).QueueGrace }},
	{"history", "7777", engineRedis, func(a *app) any { return a.redisOptions(nil).History }},
	{"history", "7777", engineMySQL, func(a *app) any { return a.mysqlOptions(nil).History }},
	{"history", "7777", enginePostgres, func(a *app) any { return a.postgresOptions(nil).History }},
	{"history", "7777", engineZooKeeper, func(a *app) any { return a.zookeeperOptions(nil).History }},
	{"legacy-simba-channels", "true", engineRedis, func(a *app) any { return a.redisOptions(nil).PlainChannels }},
}

// storeOf has the flags that name a store, for each engine.
var storeOf = map[string][]string{
	engineRedis:     {"--redis-url", "redis://127.0.0.1:1"},
	engineMySQL:     {"--mysql-dsn", "u@tcp(127.0.0.1:1)/d"},
	enginePostgres:  {"--postgres-url", "postgres://u@127.0.0.1:1/d"},
	engineZooKeeper: {"--zookeeper-servers", "127.0.0.1:1"},
}

func TestEveryFlagOfAStoreReachesItsEngine(t *testing.T) {
	for _, row := range storeWirings {
		args := append([]string{"--engine", row.engine}, storeOf[row.engine]...)
		c, err := loadTest(t, append(args, "--"+row.flag+"="+row.value), nil, "")
		if err != nil {
			t.Errorf("--%s: %v", row.flag, err)
			continue
		}
		if got := fmt.Sprint(row.got(&app{cfg: c, log: newTestLogs(t, c, io.Discard)})); got != row.value {
			t.Errorf("--%s: engine %s gets %s, want %s", row.flag, row.engine, got, row.value)
		}
	}
}

func TestUnreachableStoreIsReportedInOneLine(t *testing.T) {
	for engine, store := range storeOf {
		c, err := loadTest(t, append([]string{"--engine", engine, "--backend-timeout", "500ms", "--addr", "127.0.0.1:0"}, store...), nil, "")
		must(t, err)
		_, err = newApp(t.Context(), c, newTestLogs(t, c, io.Discard), func() {})
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("newApp with --engine %s and no store returned %v, want one line with 127.0.0.1:1", engine, err)
		}
	}
}

// notOfTheApp are the flags without a row. The end-to-end tests check shutdown-timeout and drain.
// Each row of storeWirings checks engine.
var notOfTheApp = []string{
	"shutdown-timeout", "drain", "engine",
	// These need a cluster.
	"cluster", "cluster-name", "cluster-cert-file", "cluster-key-file", "cluster-ca-cert-file", "cluster-insecure", "cluster-sentinel-addr", "cluster-announce",
	"cluster-election", "cluster-heartbeat",
}

// askedForPassword checks that a client must log in, and that fewer arguments are allowed before
// AUTH than after it.
func askedForPassword(w *wired) {
	// One argument too many before AUTH.
	echo := []any{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10"}
	if _, err := w.connect().Do("PING"); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		w.t.Errorf("PING before AUTH returned %v, want NOAUTH", err)
	}
	if _, err := w.connect().Do("ECHO", echo...); err == nil || !strings.Contains(err.Error(), "unauthenticated multibulk length") {
		w.t.Errorf("a long command before AUTH returned %v, want a refused length", err)
	}
	friend := w.connect()
	w.must(friend, "AUTH", "sesame")
	if _, err := friend.Do("ECHO", echo...); err == nil || !strings.Contains(err.Error(), "wrong number of arguments") {
		w.t.Errorf("a long command after AUTH returned %v, want a wrong number of arguments", err)
	}
}

func TestEveryFlagReachesItsPart(t *testing.T) {
	authority := certs.NewAuthority(t, "test CA")
	for _, row := range wirings {
		t.Run(fmt.Sprint(row.flag, " ", row.args), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reach2026()
				w := &wired{t: t, dir: t.TempDir(), log: new(bytes.Buffer)}
				must(t, os.WriteFile(w.dir+"/password", []byte("sesame\n"), 0o600))
				authority.Write(t, w.dir, "ca")
				authority.Sign(t, certs.Leaf{Name: "server"}).Write(t, w.dir, "server")
				users := "user default on >sesame ~* &* +@all\nuser clerk on >pen ~* +simba.acquire\n"
				must(t, os.WriteFile(w.dir+"/users", []byte(users), 0o600))
				w.app, _ = newTestApp(t, w.log, strings.Fields(strings.ReplaceAll(row.args, "$dir", w.dir))...)
				row.effect(w)
			})
		})
	}
	for _, f := range new(config).fields() {
		row := slices.ContainsFunc(wirings, func(w wiring) bool { return w.flag == f.name }) ||
			slices.ContainsFunc(storeWirings, func(w storeWiring) bool { return w.flag == f.name })
		if row == slices.Contains(notOfTheApp, f.name) {
			t.Errorf("--%s: list it either in wirings or storeWirings, or in notOfTheApp", f.name)
		}
	}
}
