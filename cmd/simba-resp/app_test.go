package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/leaks"
	"github.com/simba-resp/simba-resp/tests/need"
)

func TestMain(m *testing.M) { leaks.Exit(m.Run()) }

// newTestApp starts an app on a free port.
func newTestApp(t *testing.T, log io.Writer, args ...string) (*app, *slog.LevelVar) {
	t.Helper()
	c, err := loadTest(t, append([]string{"--addr", "127.0.0.1:0", "--data-dir", t.TempDir() + "/data"}, args...), nil, "")
	must(t, err)
	logs := newTestLogs(t, c, log)
	a, err := newApp(t.Context(), c, logs, func() {})
	must(t, err)
	t.Cleanup(func() {
		if err := a.stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return a, logs.level
}

// reach2026 lets the fake time of a synctest bubble reach 2026. At its beginning, in 2000, the server
// refuses a new data directory.
func reach2026() { time.Sleep(time.Until(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))) }

// newTestLogs returns loggers that write to w. All lines are in w after a flush.
func newTestLogs(t *testing.T, c *config, w io.Writer) *logs {
	t.Helper()
	out := newLogBuffer(w)
	t.Cleanup(func() { out.close(time.Minute) })
	return newLogs(c, out)
}

// startTestApp starts an app that serves clients and logs nothing.
func startTestApp(t *testing.T, args ...string) *app {
	t.Helper()
	a, _ := newTestApp(t, io.Discard, args...)
	a.start()
	return a
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(need.Hang); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("this did not happen within %v: %s", need.Hang, what)
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, a *app) redis.Conn {
	t.Helper()
	c, err := redis.Dial("tcp", a.ln.Addr().String())
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestStartThatFailsLeavesNothingOpen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	dir := t.TempDir() + "/data"
	c, err := loadTest(t, []string{"--addr", taken.Addr().String(), "--data-dir", dir}, nil, "")
	must(t, err)
	var log bytes.Buffer
	logs := newTestLogs(t, c, &log)
	if _, err := newApp(t.Context(), c, logs, func() {}); err == nil {
		t.Fatal("the app starts on an address that is in use")
	}
	logs.out.flush(time.Minute)
	// The failed start has made the data directory.
	if !strings.Contains(log.String(), "new data directory: it has no leases") {
		t.Errorf("the failed start did not log that it made a data directory:\n%s", &log)
	}
	newTestApp(t, io.Discard, "--data-dir", dir) // would fail if the store were still open
}

func TestSeveralErrorsAreOneLine(t *testing.T) {
	a := &app{}
	for _, err := range []error{errors.New("one"), nil, errors.Join(configErrors{errors.New("two")}, errors.New("three"))} {
		a.undo = append(a.undo, func(context.Context) error { return err })
	}
	err := a.stop(t.Context())
	if err == nil || err.Error() != "two; three; one" || !errors.As(err, new(configErrors)) {
		t.Errorf("stop returned %v, want the three texts in one line", err)
	}
	if err := a.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// slowWriter takes a while for each write.
type slowWriter struct{ bytes.Buffer }

func (w *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(logFlushTimeout / 4)
	return w.Buffer.Write(p)
}

func TestTheLastLineOfTheLogIsWrittenAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, "a warning\n"},
		{errors.New("broken"), exitFailed, "a warning\nsimba-resp: broken\n"},
		{configErrors{errors.New("wrong")}, exitUsage, "a warning\nsimba-resp: wrong\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var w slowWriter
			log := newLogBuffer(&w)
			log.Write([]byte("a warning\n"))
			if code := end(log, c.err); code != c.code || w.String() != c.want {
				t.Errorf("end(%v) returned code %d and wrote %q, want %d and %q", c.err, code, w.String(), c.code, c.want)
			}
			log.close(time.Minute)
		})
	}
}

func TestDurabilityMemoryWarnsAndWritesNothing(t *testing.T) {
	var log bytes.Buffer
	dir := t.TempDir() + "/data"
	a, _ := newTestApp(t, &log, "--durability", "memory", "--data-dir", dir)
	a.log.out.flush(time.Minute)
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "durability memory") {
		t.Errorf("the log has no warning about durability memory: %s", &log)
	}
	newTestApp(t, io.Discard, "--data-dir", dir) // would fail if the directory had files
}

func TestLiveSettingsTakeEffectAndOthersAreRefused(t *testing.T) {
	a, level := newTestApp(t, io.Discard)
	a.start()
	c := dial(t, a)
	for _, s := range []struct{ name, value, shown string }{
		{"handoff-window", "2s", "2s"},
		{"queue-grace", "1m0s", "1m0s"},
		{"maxclients", "17", "17"},
		{"timeout", "90", "90"},
		{"maxmemory", "5000000000", "5000000000"},
		{"loglevel", "debug", "debug"},
		{"loglevel", "INFO", "info"},
		{"loglevel", "error", "error"},
		{"loglevel", "warn", "warn"},
	} {
		if _, err := c.Do("CONFIG", "SET", s.name, s.value); err != nil {
			t.Errorf("CONFIG SET %s %s: %v", s.name, s.value, err)
		}
		if got, err := redis.StringMap(c.Do("CONFIG", "GET", s.name)); err != nil || got[s.name] != s.shown {
			t.Errorf("after CONFIG SET %s %s, CONFIG GET: %v, %v, want %s", s.name, s.value, got, err, s.shown)
		}
		if s.name == "loglevel" && !strings.EqualFold(level.Level().String(), s.shown) {
			t.Errorf("after CONFIG SET loglevel %s, the level of the log is %v", s.value, level.Level())
		}
	}
	if a.server.MaxClients() != 17 || a.server.IdleTimeout().Seconds() != 90 {
		t.Errorf("the server has maxclients %d, timeout %v, want 17, 1m30s", a.server.MaxClients(), a.server.IdleTimeout())
	}
	for name, value := range map[string]string{
		"handoff-window": "-1s", "queue-grace": "soon", "maxclients": "0", "maxmemory": "much", "timeout": "1500ms", "loglevel": "loud",
		"addr": "0.0.0.0:1", "durability": "memory", "data-dir": "/", "requirepass": "x",
	} {
		before, _ := redis.StringMap(c.Do("CONFIG", "GET", name))
		if _, err := c.Do("CONFIG", "SET", name, value); err == nil || !strings.Contains(err.Error(), "'"+name+"'") {
			t.Errorf("CONFIG SET %s %s returned %v, want an error that names the setting", name, value, err)
		}
		if after, _ := redis.StringMap(c.Do("CONFIG", "GET", name)); after[name] != before[name] {
			t.Errorf("the refused CONFIG SET changed %s from %s to %s", name, before[name], after[name])
		}
	}
}

// A user who may set the level must not be able to hide commands.
func TestAuditLinesAreLoggedAtAnyLevel(t *testing.T) {
	var log bytes.Buffer
	a, _ := newTestApp(t, &log, "--log-level", "error")
	a.start()
	c := dial(t, a)
	for _, command := range [][]any{{"CONFIG", "SET", "loglevel", "debug"}, {"CONFIG", "SET", "loglevel", "error"}, {"SIMBA.BREAK", "m"}} {
		if _, err := c.Do(command[0].(string), command[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Do("AUTH", "nobody", "guess"); err == nil {
		t.Fatal("a wrong password was accepted")
	}
	must(t, a.stop(t.Context()))
	a.log.out.flush(time.Minute)
	for _, want := range []string{"command=config|set", "command=simba.break mutex=m", `level=WARN msg="audit: authentication failed" user=nobody`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, &log)
		}
	}
	if n := strings.Count(log.String(), "audit: command"); n != 3 {
		t.Errorf("%d commands are audited, want 3:\n%s", n, &log)
	}
	if strings.Contains(log.String(), "msg=ready") {
		t.Errorf("the log has a line below its level:\n%s", &log)
	}
}

func TestConfigGetHasTheParametersThatRedisToolsRead(t *testing.T) {
	dir := t.TempDir() + "/data"
	a := startTestApp(t, "--data-dir", dir)
	_, port, err := net.SplitHostPort(a.ln.Addr().String())
	must(t, err)
	c := dial(t, a)
	for name, want := range map[string]string{"port": port, "bind": "127.0.0.1", "dir": dir} {
		if got, err := redis.StringMap(c.Do("CONFIG", "GET", name)); err != nil || got[name] != want {
			t.Errorf("CONFIG GET %s: %v, %v, want %s", name, got, err, want)
		}
		if _, err := c.Do("CONFIG", "SET", name, want); err == nil {
			t.Errorf("CONFIG SET %s succeeded", name)
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	var log bytes.Buffer
	a, _ := newTestApp(t, &log, "--log-level", "debug", "--requirepass", "sesame")
	a.start()
	c := dial(t, a)
	if _, err := c.Do("AUTH", "sesame"); err != nil {
		t.Fatal(err)
	}
	all, err := redis.StringMap(c.Do("CONFIG", "GET", "*"))
	if err != nil || all["addr"] == "" {
		t.Fatalf("CONFIG GET * returned %v, %v; want addr among the settings", all, err)
	}
	for name, value := range all {
		if strings.Contains(value, "sesame") {
			t.Errorf("CONFIG GET shows %s", name)
		}
	}
	if info, err := redis.String(c.Do("INFO", "everything")); err != nil || strings.Contains(info, "sesame") {
		t.Errorf("INFO shows the password, or failed: %v", err)
	}
	if err := a.stop(t.Context()); err != nil {
		t.Error(err)
	}
	a.log.out.flush(time.Minute)
	if strings.Contains(log.String(), "sesame") {
		t.Error("the log shows the password")
	}
}

func TestSettingsOfOtherEnginesAreNotShown(t *testing.T) {
	a := startTestApp(t)
	for name, want := range map[string]bool{"durability": true, "data-dir": true, "mysql-poll": false, "zookeeper-servers": false, "redis-url": false, "backend-timeout": true} {
		if got, err := redis.StringMap(dial(t, a).Do("CONFIG", "GET", name)); err != nil || (len(got) == 1) != want {
			t.Errorf("CONFIG GET %s: %v, %v, want the setting: %v", name, got, err, want)
		}
	}
}
