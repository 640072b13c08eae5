package main

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/cli"
	"github.com/simba-resp/simba-resp/commands"
)

// loadTest loads a configuration from arguments, variables and the text of a file.
func loadTest(t *testing.T, args []string, env map[string]string, file string) (*config, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "simba.toml")
		must(t, os.WriteFile(path, []byte(file), 0o600))
		args = append([]string{"--config", path}, args...)
	}
	var loaded *config
	root := newRoot(nil, func(name string) string { return env[name] }, func(_ context.Context, c *config) error { loaded = c; return nil })
	root.SetArgs(append([]string{"serve"}, args...))
	return loaded, root.ExecuteContext(t.Context())
}

func TestDefaultsAreTheDocumentedOnes(t *testing.T) {
	c, err := loadTest(t, nil, nil, "")
	must(t, err)
	want := config{
		Addr: "127.0.0.1:7379", Engine: "embedded", DataDir: "./simba-data", Durability: "always",
		HandoffWindow: time.Second, QueueGrace: 5 * time.Second, BackendTimeout: 3 * time.Second, ZooKeeperSessionTimeout: 30 * time.Second,
		History: 10000, MaxClients: 10000, ShutdownTimeout: 10 * time.Second, LogLevel: "info", LogFormat: "text",
		TLSAuthClients: "no", TLSMinVersion: "1.2", UnixSocketPerm: 0o700,
		ClusterElection: time.Second, ClusterHeartbeat: 100 * time.Millisecond,
	}
	c.users = nil // other tests check the users
	if *c != want {
		t.Errorf("without settings, loadConfig returned\n%+v, want\n%+v", *c, want)
	}
}

func TestFlagWinsOverVariableOverFileOverDefault(t *testing.T) {
	file := filepath.Join(t.TempDir(), "simba.toml")
	must(t, os.WriteFile(file, []byte("maxclients = 1\nhandoff-window = '1h'\nqueue-grace = '1h'\ninsecure = true\n"), 0o600))
	env := map[string]string{"SIMBA_MAXCLIENTS": "2", "SIMBA_HANDOFF_WINDOW": "2h", "SIMBA_CONFIG": file}
	c, err := loadTest(t, []string{"--maxclients", "3"}, env, "")
	must(t, err)
	if c.MaxClients != 3 || c.HandoffWindow != 2*time.Hour || c.QueueGrace != time.Hour || !c.Insecure || c.Durability != "always" {
		t.Errorf("loadConfig returned %+v; want each setting from its first source", *c)
	}
}

func TestLoginOfTheStoreIsReadAgainOnlyFromTheFile(t *testing.T) {
	const first, second = "redis://:first@h", "redis://:second@h"
	c, err := loadTest(t, nil, nil, "engine = 'redis'\nredis-url = '"+first+"'")
	must(t, err)
	must(t, os.WriteFile(c.File, []byte("redis-url = '"+second+"'"), 0o600))
	if got, err := c.reread("redis-url")(); err != nil || got != second {
		t.Errorf("the file has the URL %s, %v; want %s", got, err, second)
	}
	must(t, os.WriteFile(c.File, []byte("redis-url = 'half a"), 0o600))
	if got, err := c.reread("redis-url")(); err == nil {
		t.Errorf("the broken file has the URL %s; want an error", got)
	}
	c, err = loadTest(t, nil, map[string]string{"SIMBA_REDIS_URL": second}, "engine = 'redis'\nredis-url = '"+first+"'")
	if err != nil || c.reread("redis-url") != nil {
		t.Errorf("the variable has the URL, loadConfig returned %+v, %v; want no function to read the file", c, err)
	}
}

func TestAllConfigErrorsAreReportedAtOnce(t *testing.T) {
	args := []string{"--addr", "0.0.0.0:7379", "--durability", "sometimes", "--maxclients", "0", "--engine", "redis", "--mysql-poll", "1ms"}
	env := map[string]string{"SIMBA_HANDOFF_WINDOW": "5", "SIMBA_TIMEOUT": "1500ms"}
	_, err := loadTest(t, args, env, "colour = 'red'\nqueue-grace = [1]\nbackend-timeout = '0s'")
	var wrong configErrors
	if !errors.As(err, &wrong) {
		t.Fatalf("error %v, want configErrors", err)
	}
	for _, want := range []string{
		"unknown key 'colour'",
		"'queue-grace' must be a string, an integer, true or false",
		"--durability: 'sometimes' is not one of always, async, memory",
		"SIMBA_HANDOFF_WINDOW: '5' is not a duration such as 1s or 500ms",
		"--addr: 0.0.0.0:7379 is open to other machines",
		"--redis-url: --engine redis needs it, for example redis://127.0.0.1:6379",
		"--mysql-poll: it needs --engine mysql",
		"--mysql-poll: 1ms is too short, at least 10ms, or 0",
		"--maxclients: 0 is too small",
		"--timeout: 1.5s is not a whole number of seconds",
		"--backend-timeout: 0s is out of range, 1ms to 8760h0m0s",
	} {
		i := slices.IndexFunc(wrong, func(err error) bool { return strings.Contains(err.Error(), want) })
		if i < 0 {
			t.Errorf("no error says %q", want)
			continue
		}
		wrong = slices.Delete(wrong, i, i+1)
	}
	if len(wrong) > 0 {
		t.Errorf("unexpected errors: %v", wrong)
	}
}

func TestPublicAddressNeedsAPassword(t *testing.T) {
	for addr, open := range map[string]bool{
		"127.0.0.1:7379": false, "127.9.9.9:1": false, "[::1]:7379": false, "localhost:0": false,
		":7379": true, "0.0.0.0:7379": true, "[::]:7379": true, "192.168.1.2:7379": true, "db.example:7379": true,
	} {
		_, err := loadTest(t, []string{"--addr", addr}, nil, "")
		if refused := err != nil; refused != open {
			t.Errorf("--addr %s without a password: error %v, want refused: %v", addr, err, open)
		}
		for _, with := range [][]string{{"--requirepass", "secret"}, {"--insecure"}} {
			if _, err := loadTest(t, append(with, "--addr", addr), nil, ""); err != nil {
				t.Errorf("--addr %s with %v: error %v, want none", addr, with, err)
			}
		}
	}
}

func TestAddressMustBeHostAndPort(t *testing.T) {
	for _, addr := range []string{"", "7379", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:-1"} {
		if _, err := loadTest(t, []string{"--addr", addr}, nil, ""); err == nil {
			t.Errorf("--addr %q is accepted", addr)
		}
	}
}

func TestTimeoutIsSecondsOrDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "30": 30 * time.Second, "30s": 30 * time.Second, "2m": 2 * time.Minute} {
		c, err := loadTest(t, []string{"--timeout", text}, nil, "")
		if err != nil || c.Timeout != want {
			t.Errorf("--timeout %s: configuration %+v, %v; want timeout %v", text, c, err, want)
		}
	}
	if c, err := loadTest(t, nil, nil, "timeout = 30"); err != nil || c.Timeout != 30*time.Second {
		t.Errorf("timeout = 30 in the file: configuration %+v, %v; want timeout 30s", c, err)
	}
}

func TestMemoryIsWrittenAsInRedisConf(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "12": 12, "1b": 1, "1k": 1000, "1kb": 1024, "100mb": 100 << 20, "100MB": 100 << 20, "1m": 1e6, "1g": 1e9, "1gb": 1 << 30, "10Gb": 10 << 30,
		"18446744073709551615": math.MaxUint64,
	} {
		c, err := loadTest(t, []string{"--maxmemory", text}, nil, "")
		if err != nil || c.MaxMemory != want {
			t.Errorf("--maxmemory %s: configuration %+v, %v; want maxmemory %d", text, c, err, want)
		}
	}
	for text, want := range map[string]uint64{"'1gb'": 1 << 30, "1024": 1024} {
		if c, err := loadTest(t, nil, nil, "maxmemory = "+text); err != nil || c.MaxMemory != want {
			t.Errorf("maxmemory = %s in the file: configuration %+v, %v; want maxmemory %d", text, c, err, want)
		}
	}
	for _, text := range []string{"", "mb", "-1", "+5", "1x", "1tb", "1.5mb", " 1", "1 mb", "1kbmb", "18446744073709551616", "99999999999gb", "0x10", "1_000"} {
		_, err := loadTest(t, []string{"--maxmemory", text}, nil, "")
		if err == nil || err.Error() != "--maxmemory: argument must be a memory value" {
			t.Errorf("--maxmemory %q: error %v, want that it must be a memory value", text, err)
		}
	}
}

func TestMaxMemoryNeedsTheEmbeddedEngine(t *testing.T) {
	for engine, store := range storeOf {
		args := append([]string{"--engine", engine}, store...)
		want := "maxmemory: it needs --engine embedded: the store of --engine " + engine + " has its own limit"
		if _, err := loadTest(t, append(args, "--maxmemory", "1gb"), nil, ""); err == nil || err.Error() != "--"+want {
			t.Errorf("--maxmemory at the start: error %v, want --%s", err, want)
		}
		c, err := loadTest(t, append(args, "--maxmemory", "0"), nil, "")
		must(t, err)
		all := newSettings(&app{cfg: c}).list()
		s := all[slices.IndexFunc(all, func(s commands.Setting) bool { return s.Name == "maxmemory" })]
		if err := s.Set("1gb"); err == nil || err.Error() != want || s.Get() != "0" {
			t.Errorf("CONFIG SET maxmemory: error %v, value %s; want %s, and the value 0", err, s.Get(), want)
		}
	}
}

func TestPasswordIsReadFromFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	c, err := loadTest(t, []string{"--requirepass-file", write("good", "two words \n")}, nil, "")
	if err != nil || c.RequirePass != "two words " {
		t.Errorf("password file: configuration %+v, %v; want requirepass with its trailing space", c, err)
	}
	for content, want := range map[string]string{"word": "word", "word\n": "word", "word\r\n": "word", "word\n\n": "word", "\ufeffword\r\n": "word"} {
		if c, err := loadTest(t, []string{"--requirepass-file", write("line end", content)}, nil, ""); err != nil || c.RequirePass != want {
			t.Errorf("password file with %q: configuration %+v, %v; want requirepass %q", content, c, err, want)
		}
	}
	for name, args := range map[string][]string{
		"missing": {"--requirepass-file", filepath.Join(dir, "nowhere")},
		"empty":   {"--requirepass-file", write("empty", "\n")},
		"long":    {"--requirepass-file", write("long", strings.Repeat("x", maxPassword+1))},
		"both":    {"--requirepass-file", write("other", "x"), "--requirepass", "y"},
	} {
		if _, err := loadTest(t, args, nil, ""); err == nil {
			t.Errorf("%s: the password file is accepted", name)
		}
	}
}

func TestHelpNamesEveryFieldWithUnitAndDefault(t *testing.T) {
	serving, _, err := newRoot(nil, nil, nil).Find([]string{"serve"})
	must(t, err)
	page := settingsHelp(serving)
	for _, f := range new(config).fields() {
		if !strings.Contains(page, "--"+f.name+" "+f.kind+"\n") || !strings.Contains(page, cli.Variable(f.name)) {
			t.Errorf("the help lacks --%s", f.name)
		}
	}
	for _, want := range []string{"default 127.0.0.1:7379", "default 1s", "SIMBA_CONFIG"} {
		if !strings.Contains(page, want) {
			t.Errorf("the help lacks %q", want)
		}
	}
}

func TestStoreSettingsBelongToTheirEngine(t *testing.T) {
	good := map[string][]string{
		"redis":     {"--redis-url", "redis://127.0.0.1:6379"},
		"mysql":     {"--mysql-dsn", "u:p@tcp(127.0.0.1:3306)/simba", "--mysql-migrate", "--mysql-poll", "50ms"},
		"postgres":  {"--postgres-url", "postgres://u:p@127.0.0.1/simba", "--postgres-migrate", "--postgres-listen-url", "postgres://u:p@127.0.0.2/simba"},
		"zookeeper": {"--zookeeper-servers", "127.0.0.1:2181/locks", "--zookeeper-auth", "digest:u:p", "--zookeeper-session-timeout", "4s"},
		"embedded":  {"--durability", "async"},
	}
	for engine := range good {
		for of, args := range good {
			_, err := loadTest(t, append([]string{"--engine", engine, "--data-dir", "/elsewhere"}, args...), nil, "")
			if (err == nil) != (engine == of) {
				t.Errorf("--engine %s with %v: error %v, want an error: %v", engine, args, err, engine != of)
			}
			if err != nil && !strings.Contains(err.Error(), args[0]+": it needs --engine "+of) {
				t.Errorf("--engine %s with %v: error %v, want that %s needs --engine %s", engine, args, err, args[0], of)
			}
		}
		if _, err := loadTest(t, []string{"--engine", engine}, nil, ""); (err == nil) != (engine == engineEmbedded) {
			t.Errorf("--engine %s without a store: error %v, want an error: %v", engine, err, engine != engineEmbedded)
		} else if err != nil && !strings.HasPrefix(err.Error(), good[engine][0]+": --engine "+engine+" needs it, for example ") {
			t.Errorf("--engine %s without a store: error %v, want that it needs %s", engine, err, good[engine][0])
		}
	}
}

func TestConfigErrorsHideSecrets(t *testing.T) {
	_, err := loadTest(t, []string{"--redis-url", "redis://:sesame@h", "--mysql-dsn", "u:sesame@tcp(h)/d", "--postgres-url", "postgres://u:sesame@h:x/d", "--zookeeper-auth", "digest:u:sesame"}, nil, "")
	if err == nil || strings.Contains(err.Error(), "sesame") {
		t.Errorf("error %v, want an error without the secret", err)
	}
}

func TestByteOrderMarksAndLineEndsAreTrimmed(t *testing.T) {
	// Editors on Windows write such files, and "$(cat file)" passes their content on.
	acl := usersFile(t, "\ufeffuser default off\r\nuser a on >word +@all\r\n")
	c, err := loadTest(t, []string{"--queue-grace", "1s\r"}, map[string]string{
		"SIMBA_REQUIREPASS": "\ufeffword\r\n", "SIMBA_MAXCLIENTS": "7\n", "SIMBA_TIMEOUT": "\n",
	}, "\ufeffhandoff-window = '3s'\r\ntimeout = 9\r\n")
	must(t, err)
	if c.RequirePass != "word" || c.MaxClients != 7 || c.QueueGrace != time.Second || c.HandoffWindow != 3*time.Second || c.Timeout != 9*time.Second {
		t.Errorf("loadConfig returned %+v; want values without byte order marks and line ends", *c)
	}
	if c, err = loadTest(t, nil, map[string]string{"SIMBA_ACLFILE": acl + "\n"}, ""); err != nil {
		t.Fatal(err)
	}
	for password, want := range map[string]bool{"word": true, "word\r": false} {
		if got := c.users.Authenticate([]byte("a"), []byte(password)) != nil; got != want {
			t.Errorf("Authenticate with %q succeeded: %v, want %v", password, got, want)
		}
	}
}
