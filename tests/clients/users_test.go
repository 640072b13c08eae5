package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func writeUsers(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.acl")
	rewriteUsers(t, path, lines...)
	return path
}

func rewriteUsers(t *testing.T, path string, lines ...string) {
	t.Helper()
	simbatest.Must(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
}

func login(t *testing.T, s *simbatest.Server, user, password string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: s.Addr, Username: user, Password: password, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	return c
}

// denied fails the test unless err begins with NOPERM. what names the case in the failure text.
func denied(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("%s: the error is %v, want NOPERM", what, err)
	}
}

func allowed(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil && err != goredis.Nil {
		t.Errorf("%s: the error is %v, want none", what, err)
	}
}

func do(ctx context.Context, c *goredis.Client, command string) error {
	var words []any
	for _, word := range strings.Fields(command) {
		words = append(words, word)
	}
	return c.Do(ctx, words...).Err()
}

func TestUsersOfTheDocsWorkAsDocumented(t *testing.T) {
	file := writeUsers(t, simbatest.DocsBlock(t, "reference/users.md", "users")...)
	s := simbatest.Start(t, "--aclfile", file)
	ctx := t.Context()
	billing, workers := login(t, s, "billing", "change-me-1"), login(t, s, "workers", "change-me-2")
	dashboard, ops := login(t, s, "dashboard", "change-me-3"), login(t, s, "ops", "change-me-4")

	err := goredis.NewClient(&goredis.Options{Addr: s.Addr}).Ping(ctx).Err()
	if err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("a client without a password gets %v, want NOAUTH", err)
	}

	acquire := func(c *goredis.Client, mutex, contender string) error {
		return c.Do(ctx, "SIMBA.ACQUIRE", mutex, contender, 60_000).Err()
	}
	allowed(t, "billing's own mutex", acquire(billing, "billing:invoices", "billing:1"))
	denied(t, "another's mutex", acquire(billing, "jobs:1", "billing:1"))
	denied(t, "in another's name", acquire(billing, "billing:invoices", "worker-1"))
	denied(t, "billing's BREAK", billing.Do(ctx, "SIMBA.BREAK", "billing:invoices").Err())
	denied(t, "a plain key", billing.Get(ctx, "billing:invoices").Err())
	for _, all := range []string{"SIMBA.SCAN 0", "SCAN 0", "KEYS *", "PUBSUB CHANNELS", "PUBSUB SHARDCHANNELS", "MONITOR", "SIMBA.BACKUP BEGIN"} {
		denied(t, "billing's list of all names by "+all, do(ctx, billing, all))
	}
	notices := billing.Subscribe(ctx, "simba:{billing:invoices}", "simba:{billing:invoices}:billing:1")
	defer notices.Close()
	if _, err := notices.Receive(ctx); err != nil {
		t.Errorf("SUBSCRIBE by billing to its own channels returns %v", err)
	}
	others := billing.Subscribe(ctx, "simba:{jobs:1}")
	defer others.Close()
	if _, err := others.Receive(ctx); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
		t.Errorf("SUBSCRIBE by billing to another's channel returns %v, want NOPERM", err)
	}

	allowed(t, "a worker", acquire(workers, "jobs:1", "worker-1"))
	allowed(t, "a worker's key", workers.SetNX(ctx, "jobs:2", "worker-2", 0).Err())
	denied(t, "a worker's key in another's name", workers.SetNX(ctx, "jobs:3", "billing", 0).Err())
	denied(t, "a worker's key with a random value", workers.SetNX(ctx, "jobs:3", "4f1c-random", 0).Err())
	locks := login(t, s, "locks", "change-me-5")
	allowed(t, "lock code with a random value", locks.SetNX(ctx, "locks:1", "4f1c-random", 0).Err())
	denied(t, "lock code in the workers' mutexes", locks.SetNX(ctx, "jobs:3", "4f1c-random", 0).Err())
	denied(t, "a worker's script", workers.Eval(ctx, "return redis.call('get', KEYS[1])", []string{"billing:invoices"}).Err())
	denied(t, "a worker's CONFIG", workers.ConfigGet(ctx, "*").Err())

	allowed(t, "the dashboard's OWNER", dashboard.Do(ctx, "SIMBA.OWNER", "billing:invoices").Err())
	allowed(t, "the dashboard's SCAN", dashboard.Do(ctx, "SIMBA.SCAN", 0).Err())
	allowed(t, "the dashboard's INFO", dashboard.Info(ctx).Err())
	allowed(t, "the dashboard's SLOWLOG GET", dashboard.SlowLogGet(ctx, 10).Err())
	allowed(t, "the dashboard's HELP", dashboard.Do(ctx, "SIMBA.HELP").Err())
	for _, other := range []string{"CLIENT LIST", "CONFIG GET *", "PSUBSCRIBE simba*", "PUBLISH simba:{m} x", "PUBLISH simba-events:{m} x"} {
		denied(t, "the dashboard's "+other, do(ctx, dashboard, other))
	}
	denied(t, "the dashboard's SLOWLOG RESET", dashboard.Do(ctx, "SLOWLOG", "RESET").Err())
	denied(t, "the dashboard's ACQUIRE", acquire(dashboard, "m", "dashboard"))
	denied(t, "the dashboard's RELEASE", dashboard.Do(ctx, "SIMBA.RELEASE", "billing:invoices", "billing:1").Err())
	denied(t, "the dashboard's SHUTDOWN", dashboard.Do(ctx, "SHUTDOWN").Err())

	if n, err := ops.Do(ctx, "SIMBA.BREAK", "billing:invoices").Int(); n != 1 || err != nil {
		t.Errorf("BREAK by ops returns %d, %v, want 1", n, err)
	}
	s.Wants(t, `level=INFO msg="audit: command" user=ops addr=127\.0\.0\.1:\d+ command=simba\.break mutex=billing:invoices`)
	s.Wants(t, `level=WARN msg="audit: permission denied" user=billing .*command.*simba\.break`)
	if strings.Contains(s.Output(), "change-me") {
		t.Error("the log shows a password")
	}
}

func TestAStoppingServerLogsEachFailedLogin(t *testing.T) {
	s := simbatest.Start(t, "--aclfile", writeUsers(t, "user admin on >1 ~* +@all"))
	admin := simbatest.Conn(t, s)
	simbatest.Do(t, admin, "AUTH", "admin", "1")
	const tries = 35 // so many that the server logs some of them together
	for range tries {
		c := simbatest.Conn(t, s)
		simbatest.Must(t, c.Send("AUTH", "admin", "guess"))
		if err := c.Flush(); err != nil { // without the reply, which is delayed
			t.Fatal(err)
		}
	}
	simbatest.Await(t, "INFO counts all failed logins", func() bool {
		info := simbatest.Do(t, admin, "INFO", "stats")
		return strings.Contains(string(info.([]byte)), fmt.Sprintf("acl_access_denied_auth:%d\r\n", tries))
	})
	if _, err := admin.Do("SHUTDOWN"); err == nil {
		t.Error("the server replies to SHUTDOWN")
	}
	s.Wait(t)
	log := s.Output()
	if !strings.Contains(log, `msg="audit: command" user=admin`) || !strings.Contains(log, "command=shutdown") {
		t.Errorf("SHUTDOWN is not in the log:\n%s", log)
	}
	each := strings.Count(log, `msg="audit: authentication failed"`)
	sum := each
	for _, m := range regexp.MustCompile(`msg="audit: (?:authentication failed"|left out" of="audit: authentication failed").* unlogged=(\d+)`).FindAllStringSubmatch(log, -1) {
		n, err := strconv.Atoi(m[1])
		simbatest.Must(t, err)
		sum += n
	}
	if sum != tries || each == tries {
		t.Errorf("%d lines of the log report %d failed logins, want fewer lines and %d logins:\n%s", each, sum, tries, log)
	}
}
