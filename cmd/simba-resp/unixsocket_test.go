package main

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"
)

func TestUnixSocketHasItsPermissionFromTheStart(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0))
	path := filepath.Join(t.TempDir(), "s")
	for perm, want := range map[fs.FileMode]fs.FileMode{0o700: 0o700, 0o660: 0o660, 0o777: 0o777, 0: 0o777} {
		ln, err := listenUnix(path, perm)
		must(t, err)
		if info, err := os.Stat(path); err != nil || info.Mode() != want|fs.ModeSocket {
			t.Errorf("listenUnix with mode %o: the file has mode %v (error %v), want %o", perm, info.Mode(), err, want)
		}
		ln.Close()
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("listenUnix with mode %o: after Close, Lstat returned %v, want no such file", perm, err)
		}
	}
}

func TestStaleUnixSocketIsReplacedAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	must(t, err)
	left.SetUnlinkOnClose(false)
	left.Close()
	ln, err := listenUnix(stale, 0o700)
	must(t, err)
	defer ln.Close()

	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	must(t, os.WriteFile(file, []byte("mine"), 0o600))
	must(t, os.Symlink(file, link))
	for path, want := range map[string]string{
		stale: "another process listens on", file: "is not a socket", link: "is not a socket", dir: "is not a socket",
		filepath.Join(dir, "none", "s"): "no such file",
	} {
		got, err := listenUnix(path, 0o700)
		if err == nil {
			got.Close()
		}
		if err == nil || !strings.HasPrefix(err.Error(), "unixsocket: ") || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("listen on %s: %v, want %q", path, err, want)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("listenUnix changed the file that it refused: %q (error %v), want mine", text, err)
	}
	if nc, err := net.Dial("unix", stale); err != nil {
		t.Errorf("the live socket does not accept: %v", err)
	} else {
		nc.Close()
	}
}

func TestUnixSocketSettingsAreChecked(t *testing.T) {
	long := "/" + strings.Repeat("x", maxSocketPath)
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--unixsocket", long}, "--unixsocket: the path has"},
		{[]string{"--unixsocket", "@abstract"}, `--unixsocket: "@abstract" is not the path of a file`},
		{[]string{"--unixsocket", "a\nb"}, `--unixsocket: "a\nb" is not`},
		{[]string{"--unixsocket", "s", "--unixsocketperm", "888"}, "--unixsocketperm: '888' is not an octal number from 0 to 777"},
		{[]string{"--unixsocket", "s", "--unixsocketperm", "1000"}, "--unixsocketperm: '1000' is not"},
		{[]string{"--unixsocketperm", "770"}, "--unixsocketperm: it needs --unixsocket"},
		{[]string{"--addr", ""}, "so are --tls-addr and --unixsocket"},
		{[]string{"--unixsocket", "s", "--addr", "0.0.0.0:0"}, "is open to other machines"},
	} {
		if _, err := loadTest(t, tt.args, nil, ""); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: %v, want %q", tt.args, err, tt.want)
		}
	}
	c, err := loadTest(t, []string{"--addr", "", "--unixsocket", long[:maxSocketPath], "--unixsocketperm", "0770"}, nil, "")
	if err != nil || c.UnixSocketPerm != 0o770 {
		t.Errorf("loadConfig with the longest path returned %+v, %v; want unixsocketperm 0770", c, err)
	}
}

// If a server listens only on the unix socket, it needs no password, and has no port.
func TestUnixSocketServesWithoutAPort(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := startTestApp(t, "--addr", "", "--unixsocket", path, "--unixsocketperm", "770", "--maxclients", "2")
	connect := func() redis.Conn {
		c, err := redis.Dial("unix", path)
		must(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	c := connect()
	values, err := redis.StringMap(c.Do("CONFIG", "GET", "*"))
	if err != nil || values["unixsocket"] != path || values["unixsocketperm"] != "770" || values["port"] != "0" || values["bind"] != "" {
		t.Errorf("CONFIG GET: unixsocket %q, unixsocketperm %q, port %q, bind %q, error %v; want %q, 770, 0, no bind, and no error",
			values["unixsocket"], values["unixsocketperm"], values["port"], values["bind"], err, path)
	}
	info, err := redis.String(c.Do("INFO", "server"))
	if err != nil || !strings.Contains(info, "\r\nunixsocket:"+path+"\r\n") || !strings.Contains(info, "\r\ntcp_port:0\r\n") {
		t.Errorf("INFO server returned %v, %v; want the path of the unix socket, and port 0", info, err)
	}
	list, err := redis.String(c.Do("CLIENT", "LIST"))
	if err != nil || !strings.Contains(list, " addr="+path+":0 laddr="+path+":0 ") || !strings.Contains(list, " flags=U ") {
		t.Errorf("CLIENT LIST returned %v, %v; want the path as addr, and flags=U", list, err)
	}
	second, third := connect(), connect()
	if pong, err := second.Do("PING"); pong != "PONG" || err != nil {
		t.Errorf("PING of the second client: %v, %v", pong, err)
	}
	if _, err := third.Receive(); err == nil || !strings.Contains(err.Error(), "max number of clients") {
		t.Errorf("the third client got %v, want that the limit is reached", err)
	}
	if killed, err := redis.Int(c.Do("CLIENT", "KILL", "ADDR", path+":0")); killed != 1 || err != nil {
		t.Errorf("CLIENT KILL closed %d connections (error %v), want 1", killed, err)
	}
	if err := a.stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("after the stop, Lstat of the socket returned %v, want no such file", err)
	}
}
