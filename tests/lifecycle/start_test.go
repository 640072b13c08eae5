package lifecycle

import (
	"bufio"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestOpenAddressWithoutPasswordIsRefused(t *testing.T) {
	simbatest.Refused(t, 2, "0.0.0.0:0 is open to other machines", "--addr", "0.0.0.0:0", "--data-dir", t.TempDir()+"/data")
}

func TestOpenAddressWithPasswordServesAuthenticatedClients(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("open sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(stores.FreePort(t))
	s := simbatest.Start(t, "--addr", "0.0.0.0:"+port, "--requirepass-file", file)
	addr := "127.0.0.1:" + port

	stranger := goredis.NewClient(&goredis.Options{Addr: addr})
	defer stranger.Close()
	if err := stranger.Ping(t.Context()).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOAUTH") {
		t.Errorf("PING without the password returns %v, want NOAUTH", err)
	}
	friend := goredis.NewClient(&goredis.Options{Addr: addr, Password: "open sesame"})
	defer friend.Close()
	if err := friend.Ping(t.Context()).Err(); err != nil {
		t.Errorf("PING with the password returns %v", err)
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
	if strings.Contains(s.Output(), "sesame") {
		t.Error("the log shows the password")
	}
}

func TestBadFlagExitsWithUsageCode(t *testing.T) {
	simbatest.Refused(t, 2, "unknown flag: --adr", "--adr", "127.0.0.1:0")
}

func TestDataDirectoryThatIsAFileIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	simbatest.Refused(t, 1, file, "--addr", "127.0.0.1:0", "--data-dir", file)
}

func TestDataDirectoryOfAnotherProgramIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.doc"), []byte("years of work"), 0o600); err != nil {
		t.Fatal(err)
	}
	simbatest.Refused(t, 1, `it has "thesis.doc"`, "--addr", "127.0.0.1:0", "--data-dir", dir)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("the refused server has changed the directory: ReadDir returns %v, %v", entries, err)
	}
}

func TestDataDirectoryInUseIsRefused(t *testing.T) {
	s := simbatest.Start(t)
	simbatest.Refused(t, 1, "in use by another process", "--addr", "127.0.0.1:0", "--data-dir", s.Dir)
	if err := simbatest.GoRedis(t, s).Ping(t.Context()).Err(); err != nil {
		t.Errorf("the first server no longer works: %v", err)
	}
}

// newDirLine matches the log line of a server that has created its data directory.
const newDirLine = `level=WARN msg="new data directory: it has no leases" dir=(\S+)`

func TestANewDataDirectoryIsLoggedOnce(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := simbatest.StartIn(t, dir)
	if match := regexp.MustCompile(newDirLine).FindStringSubmatch(s.Output()); match == nil || match[1] != dir {
		t.Errorf("the server does not log that the directory is new:\n%s", s.Output())
	}
	s.Signal(syscall.SIGKILL) // the directory exists, but has no lease
	s.Wait(t)
	again := simbatest.StartIn(t, dir)
	if log := again.Output(); regexp.MustCompile(newDirLine).MatchString(log) {
		t.Errorf("the server logs that the directory of an earlier run is new:\n%s", log)
	}
}

func TestWithoutADataDirectoryNoneIsLogged(t *testing.T) {
	s := simbatest.Start(t, "--durability", "memory")
	if log := s.Output(); strings.Contains(log, "data directory") {
		t.Errorf("with --durability memory the server logs a data directory:\n%s", log)
	}
}

func TestAddressInUseIsRefused(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s := simbatest.Start(t) // the server logs a new data directory
	s.Stop()
	simbatest.Refused(t, 1, "addr: listen tcp "+ln.Addr().String()+": bind: address already in use", "--addr", ln.Addr().String(), "--data-dir", s.Dir)
}

func TestCorruptDataIsRefused(t *testing.T) {
	s := simbatest.Start(t)
	if status, _ := simbatest.Acquire(t, simbatest.GoRedis(t, s), "job", "a", 60_000); status != "acquired" {
		t.Fatalf("ACQUIRE returns %s, want acquired", status)
	}
	s.Signal(syscall.SIGTERM)
	s.Wait(t)
	manifests, err := filepath.Glob(s.Dir + "/MANIFEST-*")
	if err != nil || len(manifests) == 0 {
		t.Fatalf("no manifest in the data directory: %v", err)
	}
	for _, m := range manifests {
		if err := os.WriteFile(m, []byte("garbage"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	simbatest.Refused(t, 1, s.Dir, "--addr", "127.0.0.1:0", "--data-dir", s.Dir)
}

func TestCheckConfigReportsEveryFaultAndDoesNotServe(t *testing.T) {
	if out := simbatest.Output(t, simbatest.Binary(t), "check"); out != "the configuration is valid" {
		t.Errorf("the server logs %q", out)
	}
	out := simbatest.Output(t, simbatest.Binary(t), "check", "--maxclients", "0", "--engine", "mysql")
	for _, want := range []string{"2 errors", "--maxclients", "--mysql-dsn: --engine mysql needs it, for example "} {
		if !strings.Contains(out, want) {
			t.Errorf("the server logs %q, want %q in it", out, want)
		}
	}
}

// With few files, the server allows fewer clients, so that enough files are left for its store.
func TestFewOpenFilesLowerMaxclients(t *testing.T) {
	s := simbatest.New(t)
	s.Command = []string{"sh", "-c", `ulimit -n 256; exec "$0" "$@"`, simbatest.Binary(t)}
	s.Start()
	c := simbatest.GoRedis(t, s)
	if got := c.ConfigGet(t.Context(), "maxclients").Val()["maxclients"]; got != "128" {
		t.Errorf("CONFIG GET maxclients returns %s, want 128", got)
	}
	if err := c.ConfigSet(t.Context(), "maxclients", "129").Err(); err == nil {
		t.Error("CONFIG SET accepts a maxclients above the limit of open files")
	}
	refused := make(chan bool)
	var connected []net.Conn
	for range 300 {
		nc, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		connected = append(connected, nc)
		go func() {
			// A client that the server does not refuse receives nothing.
			line, _ := bufio.NewReader(nc).ReadString('\n')
			refused <- line == "-ERR max number of clients reached\r\n"
		}()
	}
	tooMany := 300 - 128
	for range tooMany {
		select {
		case refused := <-refused:
			if !refused {
				t.Error("a connection ended without the error about maxclients")
			}
		case <-time.After(simbatest.Patience):
			t.Fatalf("the server refuses fewer than %d of 300 connections", tooMany)
		}
	}
	if status, _ := simbatest.Acquire(t, c, "job", "a", 600_000); status != "acquired" {
		t.Errorf("ACQUIRE returns %s, want acquired", status)
	}
	for _, nc := range connected {
		nc.Close()
	}
	for range 300 - tooMany {
		<-refused
	}
}
