package lifecycle

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// nohup starts a program with SIGHUP ignored. A shell starts a background command with SIGINT and
// SIGQUIT ignored.
func TestASignalThatIsIgnoredFromTheStartStaysIgnored(t *testing.T) {
	background := []string{"sh", "-c", `trap '' INT QUIT; exec "$0" "$@"`}
	for name, c := range map[string]struct {
		starter []string
		signals []syscall.Signal
	}{
		"nohup":      {[]string{"nohup"}, []syscall.Signal{syscall.SIGHUP}},
		"background": {background, []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT}},
	} {
		t.Run(name, func(t *testing.T) {
			start := func(args ...string) *simbatest.Process {
				args = append(append(c.starter[1:len(c.starter):len(c.starter)], simbatest.Binary(t)), args...)
				return simbatest.RunCmd(t, exec.Command(c.starter[0], args...))
			}
			server := start("--addr", "127.0.0.1:0", "--durability", "memory")
			addr := server.Wants(t, `msg=ready addr=(\S+)`)[1]
			for _, sig := range c.signals {
				wantIgnored(t, server, sig)
				server.Signal(sig)
				conn, err := redis.Dial("tcp", addr)
				if err != nil {
					t.Fatalf("after an ignored %v: %v", sig, err)
				}
				defer conn.Close()
				if _, err := conn.Do("PING"); err != nil {
					t.Fatalf("after an ignored %v: %v", sig, err)
				}
			}

			watch := start("watch", "job", "--url", "redis://"+addr)
			watch.Wants(t, "watching")
			for _, sig := range c.signals[:1] {
				wantIgnored(t, watch, sig)
			}

			server.Signal(syscall.SIGTERM)
			if code := server.Wait(t); code != 0 {
				t.Errorf("after SIGTERM the server exits with code %d, want 0:\n%s", code, server.Output())
			}
		})
	}
}

// wantIgnored checks that a process ignores a signal. The kernel knows; an absent reaction would be
// no proof, since it may still come.
func wantIgnored(t *testing.T, p *simbatest.Process, sig syscall.Signal) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Pid()))
	simbatest.Must(t, err)
	mask, err := strconv.ParseUint(string(regexp.MustCompile(`SigIgn:\s*(\w+)`).FindSubmatch(status)[1]), 16, 64)
	simbatest.Must(t, err)
	if mask&(1<<(sig-1)) == 0 {
		t.Errorf("process %d does not ignore %v", p.Pid(), sig)
	}
}
