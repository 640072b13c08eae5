package metrics

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/monitor"
	"github.com/simba-resp/simba-resp/tests/certs"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// move is an action that must change the value of a metric.
type move struct {
	metric string
	labels []string // selects series whose labels contain all of these texts
	do     func(t *testing.T, s *server)
}

// on returns a move for the series with the label.
func on(metric, label string, do func(*testing.T, *server)) move {
	return move{metric, []string{label}, do}
}

// check runs the moves in order, and checks that each changes its metric.
func check(t *testing.T, s *server, moves []move) {
	for _, m := range moves {
		t.Run(m.metric+strings.Join(m.labels, ","), func(t *testing.T) {
			// The clients of the previous move must have left, or they could change the metric.
			simbatest.Await(t, "all clients have left", func() bool { return value(t, s.scrape(t), "simba_connections") == 0 })
			before := value(t, s.scrape(t), m.metric, m.labels...)
			m.do(t, s)
			simbatest.Await(t, "the metric has changed", func() bool { return value(t, s.scrape(t), m.metric, m.labels...) != before })
		})
	}
}

// do returns an action that sends a command and ignores the reply.
func do(words ...any) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		send(t, s, words...)
	}
}

func send(t *testing.T, s *server, words ...any) {
	t.Helper()
	c := simbatest.Conn(t, s.Server)
	defer c.Close()
	if _, err := c.Do(words[0].(string), words[1:]...); err != nil {
		t.Logf("%v: %v", words, err)
	}
}

// all returns an action that runs several actions in order.
func all(actions ...func(*testing.T, *server)) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		for _, a := range actions {
			a(t, s)
		}
	}
}

// blocked returns an action that lets a client wait for a mutex until the test ends.
func blocked(mutex, contender string) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		c := simbatest.Conn(t, s.Server)
		simbatest.Must(t, c.Send("SIMBA.ACQUIRE", mutex, contender, 60_000, "WAIT", 0))
		simbatest.Must(t, c.Flush())
		simbatest.AwaitBlocked(t, s.Addr, 1)
	}
}

// connected returns an action that sends a command, and keeps the connection until the test ends.
func connected(words ...any) func(*testing.T, *server) {
	return func(t *testing.T, s *server) {
		if _, err := simbatest.Conn(t, s.Server).Do(words[0].(string), words[1:]...); err != nil {
			t.Fatal(err)
		}
	}
}

const hour = 3_600_000 // in ms

// embeddedMoves are moves on one server with the embedded engine and a disk, in this order.
var embeddedMoves = []move{
	{"simba_mutexes", nil, do("SIMBA.ACQUIRE", "m1", "a", hour)},
	{"simba_mutexes_held", nil, do("SIMBA.ACQUIRE", "m2", "a", hour)},
	{"simba_dataset_bytes", nil, do("SIMBA.ACQUIRE", "m3", "a", hour)},
	on("simba_waiters", `kind="polling"`, do("SIMBA.ACQUIRE", "m1", "b", hour)),
	on("simba_waiters", `kind="blocked"`, blocked("m2", "b")),
	{"simba_connections_blocked", nil, blocked("m2", "c")},
	{"simba_sessions", nil, connected("SIMBA.ACQUIRE", "s", "a", hour, "SESSION")},
	{"simba_tenures_begun_total", nil, do("SIMBA.ACQUIRE", "m4", "a", hour)},
	on("simba_tenures_total", `end="released"`, do("SIMBA.RELEASE", "m4", "a")),
	on("simba_tenures_total", `end="broken"`, do("SIMBA.BREAK", "m3")),
	on("simba_tenures_total", `end="expired"`, do("SIMBA.ACQUIRE", "m5", "a", 100)),
	{"simba_hold_seconds", nil, all(do("SIMBA.ACQUIRE", "m6", "a", hour), do("SIMBA.RELEASE", "m6", "a"))},
	{"simba_handoffs_total", nil, all(do("SIMBA.ACQUIRE", "m7", "a", hour), blocked("m7", "b"), do("SIMBA.RELEASE", "m7", "a"))},
	{"simba_renewals_total", nil, do("SIMBA.ACQUIRE", "m1", "a", hour)},
	on("simba_acquires_total", `result="acquired"`, do("SIMBA.ACQUIRE", "m8", "a", hour)),
	on("simba_acquires_total", `result="renewed"`, do("SIMBA.ACQUIRE", "m8", "a", hour)),
	on("simba_acquires_total", `result="queued"`, do("SIMBA.ACQUIRE", "m8", "b", hour)),
	on("simba_acquires_total", `result="busy"`, do("SIMBA.ACQUIRE", "m8", "c", hour, "NOQUEUE")),
	on("simba_acquires_total", `result="timeout"`, do("SIMBA.ACQUIRE", "m8", "d", hour, "WAIT", 1)),
	on("simba_acquires_total", `result="error"`, do("SIMBA.ACQUIRE", "m8", "d", "soon")),
	on("simba_guards_total", `result="renewed"`, do("SIMBA.GUARD", "m8", "a", hour)),
	on("simba_guards_total", `result="lost"`, do("SIMBA.GUARD", "m8", "b", hour)),
	on("simba_guards_total", `result="error"`, do("SIMBA.GUARD", "m8", "a", "soon")),
	{"simba_acquire_wait_seconds", nil, do("SIMBA.ACQUIRE", "m9", "a", hour, "WAIT", 1)},
	on("simba_mutex_held", `mutex="listed:1"`, do("SIMBA.ACQUIRE", "listed:1", "a", hour)),
	on("simba_mutex_waiters", `mutex="listed:1"`, do("SIMBA.ACQUIRE", "listed:1", "b", hour)),
	{"simba_mutex_series_complete", nil, manyListed},
	{"simba_dataset_limit_bytes", nil, do("CONFIG", "SET", "maxmemory", "1gb")},
	{"simba_journal_sync_seconds", nil, do("SIMBA.ACQUIRE", "m10", "a", hour)},
	{"simba_journal_group_changes", nil, do("SIMBA.ACQUIRE", "m11", "a", hour)},
	{"simba_journal_bytes_total", nil, do("SIMBA.ACQUIRE", "m12", "a", hour)},
	{"simba_connections", nil, connected("PING")},
	{"simba_connections_accepted_total", nil, do("PING")},
	{"simba_connections_subscribed", nil, connected("SUBSCRIBE", "x")},
	{"simba_connections_limit", nil, do("CONFIG", "SET", "maxclients", 900)},
	{"simba_connections_rejected_total", nil, reject},
	{"simba_received_bytes_total", nil, do("PING")},
	{"simba_sent_bytes_total", nil, do("PING")},
	{"simba_commands_total", []string{`command="echo"`, `result="ok"`}, do("ECHO", "x")},
	{"simba_commands_total", []string{`command="echo"`, `result="rejected"`}, do("ECHO")},
	{"simba_commands_total", []string{`command="simba.check"`, `result="failed"`}, do("SIMBA.CHECK", "m", "x")},
	on("simba_command_duration_seconds", `command="ping"`, do("PING")),
	on("simba_error_replies_total", `code="ERR"`, do("NOSUCHCOMMAND")),
	on("simba_denials_total", `reason="auth"`, do("AUTH", "nobody", "guess")),
	{"simba_subscribers_disconnected_total", nil, deafSubscriber},
}

// reject connects one client above maxclients, which the server must refuse.
func reject(t *testing.T, s *server) {
	c := simbatest.Conn(t, s.Server)
	defer c.Close()
	limit := func(n int) {
		simbatest.Do(t, c, "CONFIG", "SET", "maxclients", n)
	}
	limit(1)
	defer limit(10_000)
	more := simbatest.Conn(t, s.Server)
	defer more.Close()
	if _, err := more.Do("PING"); err == nil {
		t.Error("the server does not refuse a client above maxclients")
	}
}

// manyListed acquires more mutexes than may have their own series.
func manyListed(t *testing.T, s *server) {
	c := simbatest.Conn(t, s.Server)
	defer c.Close()
	for i := range 250 {
		simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", fmt.Sprintf("listed:many:%d", i), "a", hour)
	}
	if series := strings.Count(s.scrape(t), "\nsimba_mutex_held{"); series != 200 {
		t.Errorf("%d mutexes have their own series, want 200", series)
	}
}

// deafSubscriber publishes to a subscriber that reads nothing, until the server disconnects it.
func deafSubscriber(t *testing.T, s *server) {
	connected("SUBSCRIBE", "deaf")(t, s)
	c := simbatest.Conn(t, s.Server)
	defer c.Close()
	payload := strings.Repeat("x", 64<<10)
	simbatest.Await(t, "the server has disconnected the subscriber", func() bool {
		n, err := redis.Int(c.Do("PUBLISH", "deaf", payload))
		return err == nil && n == 0
	})
}

func TestEachMetricMoves(t *testing.T) {
	covered := []string{}
	run := func(name string, moves []move, start func(t *testing.T) *server) {
		for _, m := range moves {
			covered = append(covered, m.metric)
		}
		t.Run(name, func(t *testing.T) {
			s := start(t)
			check(t, s, moves)
			checkNames(t, s)
		})
	}
	run("embedded", embeddedMoves, func(t *testing.T) *server { return start(t, "--metrics-mutexes", "listed:*, other") })

	// The other metrics need other servers.
	var redisServer *stores.Server
	run("store", []move{
		on("simba_store_request_duration_seconds", `engine="redis"`, do("SIMBA.ACQUIRE", "m", "a", hour)),
		{"simba_hold_seconds", nil, do("SIMBA.RELEASE", "m", "a")},
		on("simba_store_fault", `setting="appendonly"`, func(t *testing.T, _ *server) {
			harmRedis(t, redisServer.Addr, "CONFIG SET appendonly no")
		}),
		on("simba_store_up", `engine="redis"`, func(*testing.T, *server) { redisServer.Stop() }),
		on("simba_store_request_failures_total", `engine="redis"`, do("SIMBA.OWNER", "m")),
	}, func(t *testing.T) *server {
		redisServer = stores.Redis(t)
		return start(t, "--engine", "redis", "--redis-url", "redis://"+redisServer.Addr, "--backend-timeout", "500ms")
	})
	run("crash", []move{
		{"simba_recovery_duration_seconds", nil, func(_ *testing.T, s *server) { s.Restart() }},
		{"simba_recovery_delay_seconds", nil, all(
			do("SIMBA.ACQUIRE", "m", "a", hour),
			func(_ *testing.T, s *server) { s.Restart() },
		)},
	}, func(t *testing.T) *server { return start(t, "--durability", "async") })
	run("certificate", []move{on("simba_tls_certificate_expiry_timestamp_seconds", `setting="tls-cert-file"`, renewCertificate)}, startTLS)
	var second *simbatest.Server
	run("cluster", []move{
		{"simba_cluster_committed_index", nil, func(t *testing.T, s *server) {
			simbatest.Await(t, "a leader that serves has acquired", func() bool {
				c := simbatest.Conn(t, s.Server)
				defer c.Close()
				_, err := c.Do("SIMBA.ACQUIRE", "m", "a", hour)
				return err == nil
			})
		}},
		{"simba_cluster_term", nil, func(t *testing.T, s *server) {
			second.Stop()
			simbatest.Await(t, "there is no leader", func() bool { return value(t, s.scrape(t), "simba_store_up") == 0 })
			second.Start()
		}},
		{"simba_cluster_leader", nil, func(t *testing.T, s *server) { changeLeader(t, s, second) }},
	}, func(t *testing.T) *server {
		both := fmt.Sprintf("a=127.0.0.1:%d,b=127.0.0.1:%d", stores.FreePort(t), stores.FreePort(t))
		s := start(t, "--cluster", both, "--cluster-name", "a")
		second = simbatest.Start(t, "--cluster", both, "--cluster-name", "b")
		awaitLeader(t, s)
		return s
	})
	var follower *simbatest.Server
	users := filepath.Join(t.TempDir(), "users.acl")
	writeUsers := func(text string) { simbatest.Must(t, os.WriteFile(users, []byte(text), 0o600)) }
	run("leader", []move{
		on("simba_cluster_member_users_differ", `member="b"`, func(t *testing.T, s *server) {
			writeUsers("user default on nopass ~* &* +@all\nuser other on nopass ~* &* +@all\n")
			send(t, s, "ACL", "LOAD")
		}),
		on("simba_cluster_member_reached", `member="b"`, func(*testing.T, *server) { follower.Stop() }),
		on("simba_cluster_member_lag_records", `member="b"`, do("SIMBA.ACQUIRE", "m", "a", hour)),
	}, func(t *testing.T) *server {
		writeUsers("user default on nopass ~* &* +@all\n")
		http := fmt.Sprintf("127.0.0.1:%d", stores.FreePort(t))
		members := simbatest.NewMembers(t, nil, func(i int) []string {
			if i == 0 {
				return []string{"--http-addr", http, "--aclfile", users}
			}
			return nil
		})
		for _, m := range members {
			m.Start()
		}
		follower = members[1]
		s := &server{members[0], "http://" + http, httpClient(t, nil)}
		simbatest.Await(t, "the member leads", func() bool {
			send(t, s, "SIMBA.CLUSTER", "TRANSFER", "a")
			return value(t, s.scrape(t), "simba_cluster_leader") == 1
		})
		return s
	})
	run("log", []move{on("simba_log_lines_dropped_total", `log="audit"`, floodLog)}, startUnread)
	var inMemory *server
	run("build", []move{
		on("simba_build_info", `durability="memory"`, func(_ *testing.T, s *server) { *s = *inMemory }),
	}, func(t *testing.T) *server {
		inMemory = start(t, "--durability", "memory")
		return start(t)
	})

	for _, m := range monitor.Metrics() {
		if !slices.Contains(covered, m.Name) {
			t.Errorf("no move tests the metric %s", m.Name)
		}
	}
}

// awaitLeader waits until the cluster has a leader.
func awaitLeader(t *testing.T, s *server) {
	t.Helper()
	simbatest.Await(t, "the cluster has a leader", func() bool { return value(t, s.scrape(t), "simba_store_up") == 1 })
}

// changeLeader makes s lead if it did not, and otherwise stops the only other member.
func changeLeader(t *testing.T, s *server, other *simbatest.Server) {
	leads := func() bool { return value(t, s.scrape(t), "simba_cluster_leader") == 1 }
	awaitLeader(t, s)
	if leads() {
		other.Stop()
		return
	}
	for !leads() {
		term := value(t, s.scrape(t), "simba_cluster_term")
		other.Restart()
		simbatest.Await(t, "another term has begun", func() bool { return value(t, s.scrape(t), "simba_cluster_term") != term })
		awaitLeader(t, s)
	}
}

// harmRedis sends a command to Redis. Then it cuts the pub/sub connections, so that the server
// checks Redis at once.
func harmRedis(t *testing.T, addr, command string) {
	t.Helper()
	c, err := redis.Dial("tcp", addr)
	simbatest.Must(t, err)
	defer c.Close()
	for _, line := range []string{command, "CLIENT KILL TYPE pubsub"} {
		words := strings.Fields(line)
		args := make([]any, 0, len(words))
		for _, w := range words[1:] {
			args = append(args, w)
		}
		if _, err := c.Do(words[0], args...); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
}

// checkNames fails the test for each series whose name or labels differ from the page of metrics.
func checkNames(t *testing.T, s *server) {
	known := make(map[string][]string)
	for _, m := range monitor.Metrics() {
		known[m.Name] = m.Labels
		if m.Type() == "histogram" {
			known[m.Name+"_bucket"] = append([]string{"le"}, m.Labels...)
			known[m.Name+"_sum"], known[m.Name+"_count"] = m.Labels, m.Labels
		}
	}
	for line := range lines(s.scrape(t)) {
		series, _, ok := cutSeries(line)
		name := family(series)
		if !ok || !strings.HasPrefix(name, "simba_") {
			continue
		}
		labels, ok := known[name]
		if !ok {
			t.Errorf("the page of metrics has no %s", name)
		}
		for _, l := range labels {
			if !strings.Contains(series, l+`="`) {
				t.Errorf("the series %s lacks the label %s of the page of metrics", series, l)
			}
		}
	}
}

var (
	authority *certs.Authority
	tlsDir    string
)

func startTLS(t *testing.T) *server {
	authority, tlsDir = certs.NewAuthority(t, "test"), t.TempDir()
	cert, key := authority.Sign(t, certs.Leaf{Name: "server"}).Write(t, tlsDir, "server")
	s := start(t, "--durability", "memory", "--tls-addr", "127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key)
	s.url = strings.Replace(s.url, "http:", "https:", 1)
	s.client = httpClient(t, clientConfig(authority))
	return s
}

func renewCertificate(t *testing.T, s *server) {
	authority.Sign(t, certs.Leaf{Name: "server", NotAfter: time.Now().Add(time.Hour)}).Write(t, tlsDir, "server")
	s.Signal(syscall.SIGHUP)
}
