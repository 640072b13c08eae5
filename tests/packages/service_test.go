//go:build linux

package packages

import (
	"bufio"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

type unit map[string]string

func readUnit(t *testing.T) unit {
	t.Helper()
	text, err := os.ReadFile("/usr/lib/systemd/system/simba-resp.service")
	simbatest.Must(t, err)
	u := make(unit)
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			u[key] = value
		}
	}
	return u
}

type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	addr   string        // for plain RESP, from the log
	logged chan struct{} // closed when the log has ended
}

// startUnit starts the service with the folders, the user and the command of the unit.
func startUnit(t *testing.T) *server {
	t.Helper()
	u := readUnit(t)
	account, err := user.Lookup(u["User"])
	simbatest.Must(t, err)
	uid, gid := number(t, account.Uid), number(t, account.Gid)
	for _, dir := range []string{filepath.Join("/var/lib", u["StateDirectory"]), filepath.Join("/run", u["RuntimeDirectory"])} {
		simbatest.Must(t, os.MkdirAll(dir, 0o750))
		simbatest.Must(t, os.Chown(dir, uid, gid))
	}
	command := strings.Fields(u["ExecStart"])
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = u["WorkingDirectory"]
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential(uid, gid)}
	return start(t, cmd)
}

func credential(uid, gid int) *syscall.Credential {
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	simbatest.Must(t, err)
	return n
}

// start starts a server, and returns when it is ready.
func start(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	log, err := cmd.StderrPipe()
	simbatest.Must(t, err)
	simbatest.Must(t, cmd.Start())
	s := &server{t: t, cmd: cmd, logged: make(chan struct{})}
	t.Cleanup(s.kill)
	ready := make(chan string, 1)
	go func() {
		defer close(s.logged)
		defer close(ready)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			t.Log(lines.Text())
			if _, rest, ok := strings.Cut(lines.Text(), "msg=ready "); ok {
				_, rest, _ = strings.Cut(rest, "addr=")
				addr, _, _ := strings.Cut(rest, " ")
				ready <- addr
			}
		}
	}()
	if s.addr = <-ready; s.addr == "" {
		t.Fatalf("%s ended before it was ready", cmd)
	}
	return s
}

// stop stops the server as systemd does.
func (s *server) stop() {
	s.t.Helper()
	simbatest.Must(s.t, s.cmd.Process.Signal(syscall.SIGTERM))
	<-s.logged
	if err := s.cmd.Wait(); err != nil {
		s.t.Fatalf("the server exits with %v, want code 0", err)
	}
}

func (s *server) kill() {
	if s.cmd.ProcessState == nil {
		s.cmd.Process.Kill()
		<-s.logged
		s.cmd.Wait()
	}
}

// acquire makes alice the owner of job, or renews the lease, and returns the token.
func (s *server) acquire(options ...redis.DialOption) int64 {
	s.t.Helper()
	c, err := redis.Dial("tcp", s.addr, options...)
	simbatest.Must(s.t, err)
	defer c.Close()
	reply, err := redis.Values(c.Do("SIMBA.ACQUIRE", "job", "alice", "600000"))
	simbatest.Must(s.t, err)
	var status, owner, token string
	for i := 0; i+1 < len(reply); i += 2 {
		value := text(reply[i+1])
		switch text(reply[i]) {
		case "status":
			status = value
		case "owner":
			owner = value
		case "token":
			token = value
		}
	}
	if status != "acquired" && status != "renewed" || owner != "alice" {
		s.t.Fatalf("SIMBA.ACQUIRE returns the status %s and the owner %s, want alice as the owner", status, owner)
	}
	return int64(number(s.t, token))
}

func text(v any) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	default:
		return ""
	}
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out))
}
