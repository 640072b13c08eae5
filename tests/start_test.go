package tests

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// refused starts a server that must not start: it says why in one line and exits
// with the given code.
func refused(t *testing.T, code int, why string, args ...string) {
	t.Helper()
	s := launch(t, args...)
	if got := s.wait(t); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	log := strings.TrimSpace(s.out.String())
	if !strings.Contains(log, why) || strings.Count(log, "\n") > 0 {
		t.Errorf("it says:\n%s\nwant one line with %q", log, why)
	}
}

func TestOpenAddressWithoutPasswordIsRefused(t *testing.T) {
	refused(t, 2, "0.0.0.0:0 is open to other machines", "--addr", "0.0.0.0:0", "--data-dir", t.TempDir()+"/data")
}

func TestOpenAddressWithPasswordIsServedToThoseWhoKnowIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startIn(t, t.TempDir()+"/data", "--addr", "0.0.0.0:0", "--requirepass-file", file)
	addr := "127.0.0.1:" + s.port()

	stranger := goredis.NewClient(&goredis.Options{Addr: addr})
	defer stranger.Close()
	if err := stranger.Ping(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("without the password: %v", err)
	}
	friend := goredis.NewClient(&goredis.Options{Addr: addr, Password: "open sesame"})
	defer friend.Close()
	if err := friend.Ping(t.Context()).Err(); err != nil {
		t.Errorf("with the password: %v", err)
	}
	values, err := friend.ConfigGet(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range values {
		if strings.Contains(value, "sesame") {
			t.Errorf("CONFIG GET shows the password as %s", name)
		}
	}
	if strings.Contains(s.out.String(), "sesame") {
		t.Error("the log shows the password")
	}
}

func TestBadFlagExitsWithUsageCode(t *testing.T) {
	refused(t, 2, "flag provided but not defined: -adr", "--adr", "127.0.0.1:0")
}

func TestDataDirectoryThatIsAFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, 1, file, "--addr", "127.0.0.1:0", "--data-dir", file)
}

func TestDataDirectoryOfSomethingElseIsNotAdopted(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.doc"), []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, 1, `it has "thesis.doc"`, "--addr", "127.0.0.1:0", "--data-dir", dir)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("it left %v there, %v", entries, err)
	}
}

func TestDataDirectoryInUseIsRefused(t *testing.T) {
	s := start(t)
	refused(t, 1, "in use by another process", "--addr", "127.0.0.1:0", "--data-dir", s.dir)
	if err := client(t, s).Ping(t.Context()).Err(); err != nil {
		t.Errorf("the first server suffers: %v", err)
	}
}

func TestAddressInUseIsRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	refused(t, 1, "address already in use", "--addr", ln.Addr().String(), "--data-dir", t.TempDir()+"/data")
}

func TestCorruptDataIsRefused(t *testing.T) {
	s := start(t)
	if status, _ := acquire(t, client(t, s), "job", "a", 60_000); status != "acquired" {
		t.Fatal(status)
	}
	s.signal(t, syscall.SIGTERM)
	s.wait(t)
	manifests, err := filepath.Glob(s.dir + "/MANIFEST-*")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifest in the data directory: %v", err)
	}
	for _, m := range manifests {
		if err := os.WriteFile(m, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	refused(t, 1, s.dir, "--addr", "127.0.0.1:0", "--data-dir", s.dir)
}

func TestCheckConfigSaysEveryFaultAndDoesNotServe(t *testing.T) {
	if out := output(t, simbatest.Binary(t), "--check-config"); out != "the configuration is valid\n" {
		t.Errorf("it says %q", out)
	}
	out := output(t, simbatest.Binary(t), "--check-config", "--maxclients", "0", "--engine", "mysql")
	for _, want := range []string{"2 errors", "--maxclients", "--mysql-dsn: --engine mysql needs it, for example "} {
		if !strings.Contains(out, want) {
			t.Errorf("it says %q, want %q in it", out, want)
		}
	}
}

// Clients must not take the files that the store needs for its next write.
func TestFewOpenFilesLowerMaxclients(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := &server{dir: dir, process: run(t, "sh", "-c", `ulimit -n 256; exec "$0" --addr 127.0.0.1:0 --data-dir "$1"`, simbatest.Binary(t), dir)}
	s.addr = s.wants(t, readyLine)[1]
	c := client(t, s)
	if got := c.ConfigGet(t.Context(), "maxclients").Val()["maxclients"]; got != "128" {
		t.Errorf("maxclients is %s", got)
	}
	if err := c.ConfigSet(t.Context(), "maxclients", "129").Err(); err == nil {
		t.Error("it can be set beyond that")
	}
	told := make(chan bool)
	var connected []net.Conn
	for range 300 {
		nc, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		connected = append(connected, nc)
		go func() {
			line, _ := bufio.NewReader(nc).ReadString('\n') // those who are served hear nothing until the end
			told <- line == "-ERR max number of clients reached\r\n"
		}()
	}
	tooMany := 300 - 128
	for range tooMany {
		select {
		case refused := <-told:
			if !refused {
				t.Error("a connection ended without a reason")
			}
		case <-time.After(patience):
			t.Fatalf("of 300 connections fewer than %d are refused", tooMany)
		}
	}
	if status, _ := acquire(t, c, "job", "a", 600_000); status != "acquired" {
		t.Errorf("status %s", status)
	}
	for _, nc := range connected {
		nc.Close()
	}
	for range 300 - tooMany {
		<-told
	}
}
