package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/need"
)

func optionsOf(a *app) *redis.Options { return &redis.Options{Addr: a.ln.Addr().String()} }

// filesIn returns the names in a directory, nil if it does not exist.
func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestABackupAndARestoreSayWhatTheyCopied(t *testing.T) {
	a := startTestApp(t)
	c := dial(t, a)
	for _, command := range [][]any{
		{"SIMBA.ACQUIRE", "job", "worker", 10000, "TRANSITION", 2000},
		{"SET", "\x1b[2J", "1", "PX", 30000}, // clears a terminal
		{"SET", "flag", "1"},
	} {
		if _, err := c.Do(command[0].(string), command[1:]...); err != nil {
			t.Fatal(err)
		}
	}
	dir, data := filepath.Join(t.TempDir(), "a", "b"), filepath.Join(t.TempDir(), "new")
	var out bytes.Buffer
	must(t, takeBackup(t.Context(), optionsOf(a), dir, &out))
	if names := filesIn(t, dir); len(names) != 1 || names[0] != backupName {
		t.Errorf("the backup has the files %q, want only %s", names, backupName)
	}
	must(t, restoreBackup(t.Context(), dir, restoreFlags{dataDir: data, ownersStopped: true}, &out))
	for _, want := range []string{" 3 leases, 3 events, last token ", `longest lease is that of mutex "\x1b[2J": 30s`,
		"1 keys in it have no lease", "restored to " + data, "--owners-stopped\n        Risk: if an owner still works"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output has no %q:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("the output has a control character: %q", out.String())
	}
}

// restore refuses the file of a killed backup.
func TestAnInterruptedBackupIsNone(t *testing.T) {
	a := startTestApp(t)
	dir, data := t.TempDir(), filepath.Join(t.TempDir(), "new")
	must(t, os.WriteFile(filepath.Join(dir, partialName), []byte("simba-resp backup\nhalf"), 0o600))
	err := restoreBackup(t.Context(), dir, restoreFlags{dataDir: data, ownersStopped: true}, io.Discard)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("restoreBackup of an interrupted backup returned %v, want ErrNotExist", err)
	}
	err = takeBackup(t.Context(), optionsOf(a), dir, io.Discard)
	if err == nil || !strings.Contains(err.Error(), `is not empty: it has "simba-resp.backup.partial"`) {
		t.Errorf("takeBackup beside an interrupted backup returned %v, want an error that names its file", err)
	}
}

// Only the directory of the backup itself is private. Its parents may have other content.
func TestABackupMakesParentsWithTheUsualMode(t *testing.T) {
	top := t.TempDir()
	usual := filepath.Join(top, "usual")
	if err := os.Mkdir(usual, 0o755); err != nil { // the mode is the point of the test
		t.Fatal(err)
	}
	dir := filepath.Join(top, "backups", "host", "monday")
	must(t, takeBackup(t.Context(), optionsOf(startTestApp(t)), dir+"/", io.Discard))
	mode := func(path string) os.FileMode {
		stat, err := os.Stat(path)
		must(t, err)
		return stat.Mode().Perm()
	}
	for _, parent := range []string{filepath.Dir(dir), filepath.Join(top, "backups")} {
		if got, want := mode(parent), mode(usual); got != want {
			t.Errorf("%s has mode %v, want %v", parent, got, want)
		}
	}
	if got := mode(dir); got != 0o700 {
		t.Errorf("the directory of the backup has mode %v, want 0700", got)
	}
	if got := mode(filepath.Join(dir, backupName)); got != 0o600 {
		t.Errorf("the file of the backup has mode %v, want 0600", got)
	}
}

func TestABackupThatFailsLeavesNothing(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	memory, gone := startTestApp(t, "--durability", "memory"), startTestApp(t)
	nobody := optionsOf(gone)
	must(t, gone.stop(t.Context()))
	for name, test := range map[string]struct {
		ctx    context.Context
		server *redis.Options
		want   string
	}{
		"no disk":     {t.Context(), optionsOf(memory), "durability always or async only"},
		"no server":   {t.Context(), nobody, "connection refused"},
		"interrupted": {ended, optionsOf(startTestApp(t)), "interrupted"},
	} {
		top := t.TempDir()
		must(t, os.Mkdir(filepath.Join(top, "old"), 0o700))
		for _, dir := range []string{"old", "old/monday", "backups/monday"} {
			err := takeBackup(test.ctx, test.server, filepath.Join(top, dir), io.Discard)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: takeBackup returned %v, want an error with %q", name, err, test.want)
			}
		}
		if names := slices.Concat(filesIn(t, top), filesIn(t, filepath.Join(top, "old"))); !slices.Equal(names, []string{"old"}) {
			t.Errorf("%s: the failed backups left %q, want only the directory that was there", name, names)
		}
	}
}

// Ctrl-C must end the wait for a server that does not reply.
func TestABackupOfASilentServerCanBeInterrupted(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	server := &redis.Options{Addr: ln.Addr().String(), Protocol: 2, DisableIdentity: true}
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	dir := t.TempDir()
	go func() { failed <- takeBackup(ctx, server, dir, io.Discard) }()
	conn, err := ln.Accept()
	must(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for line := ""; line != "BEGIN\r\n"; { // replies to the commands that go-redis sends first
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if line == "HELLO\r\n" || line == "hello\r\n" {
			if _, err := io.WriteString(conn, "-ERR unknown command\r\n"); err != nil {
				t.Fatal(err)
			}
		}
	}
	cancel()
	select {
	case err := <-failed:
		if err == nil || !strings.HasSuffix(err.Error(), ": interrupted") {
			t.Errorf("interrupted takeBackup returned %v, want an error that ends in: interrupted", err)
		}
	case <-time.After(need.Hang):
		t.Fatal("takeBackup still waits after the interrupt")
	}
	if names := filesIn(t, dir); len(names) != 0 {
		t.Errorf("the directory has the files %q, want none", names)
	}
}

func TestAnInterruptedRestoreLeavesNoDataDirectory(t *testing.T) {
	dir, data := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "new")
	must(t, takeBackup(t.Context(), optionsOf(startTestApp(t)), dir, io.Discard))
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	flags := restoreFlags{dataDir: data, ownersStopped: true}
	var out bytes.Buffer
	err := restoreBackup(ctx, dir, flags, &out)
	if want := "restore: interrupted; nothing was restored to " + data + ", so restore again"; err == nil || err.Error() != want {
		t.Errorf("interrupted restore returned %v, want %s", err, want)
	}
	if strings.Contains(out.String(), "restored to") {
		t.Errorf("interrupted restore prints that it has restored: %s", &out)
	}
	if names := filesIn(t, data); !slices.Equal(names, []string{"LOCK"}) {
		t.Errorf("interrupted restore left the files %q, want only LOCK", names)
	}
	c, err := loadTest(t, []string{"--addr", "127.0.0.1:0", "--data-dir", data}, nil, "")
	must(t, err)
	if _, err := newApp(t.Context(), c, newTestLogs(t, c, io.Discard), func() {}); err == nil {
		t.Error("a server starts on the incomplete data directory")
	}
	if err := restoreBackup(t.Context(), dir, flags, io.Discard); err != nil {
		t.Errorf("restore after an interrupted one: %v", err)
	}
}

func TestRestoreRefusesFlagsWithTheRisks(t *testing.T) {
	for args, want := range map[string]string{
		"restore":                "name one directory of a backup; there are 0 arguments",
		"restore a b":            "there are 2 arguments",
		"restore a":              "--data-dir is required",
		"restore a --data-dir b": "--recovery-delay DURATION\n",
		"restore a --data-dir c": "--owners-stopped\n",
		"restore a --data-dir d": "its mutex can get a second one at once",
		"restore a --data-dir e": "Risk: a longer lease",
		"restore a --data-dir b --recovery-delay -1s":                 "--recovery-delay must be above 0",
		"restore a --data-dir b --recovery-delay 49h":                 "at most 48h0m0s",
		"restore a --data-dir b --recovery-delay soon":                "--recovery-delay",
		"restore a --data-dir b --recovery-delay 1s --owners-stopped": "only one of --recovery-delay and --owners-stopped",
	} {
		err := run(t.Context(), strings.Fields(args), func(string) string { return "" }, io.Discard, nil)
		coded := (interface{ ExitCode() int })(nil)
		if err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, &coded) || coded.ExitCode() != exitUsage {
			t.Errorf("%s: %v, want code %d and %q", args, err, exitUsage, want)
		}
	}
}
