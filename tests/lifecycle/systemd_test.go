package lifecycle

import (
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// notifySocket receives the reports of a service to systemd.
type notifySocket struct {
	t    *testing.T
	conn *net.UnixConn
	path string
	got  []string // assignments received so far
}

func newNotifySocket(t *testing.T) *notifySocket {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	simbatest.Must(t, err)
	t.Cleanup(func() { conn.Close() })
	return &notifySocket{t: t, conn: conn, path: path}
}

// run starts a server with the environment that systemd gives to a service.
func (n *notifySocket) run(args, env []string) *simbatest.Process {
	n.t.Helper()
	cmd := exec.Command(simbatest.Binary(n.t), args...)
	cmd.Env = slices.Concat(simbatest.Environ(), []string{"NOTIFY_SOCKET=" + n.path}, env)
	return simbatest.RunCmd(n.t, cmd)
}

// await receives reports until one has an assignment with the prefix, and returns the assignment.
func (n *notifySocket) await(prefix string) string {
	n.t.Helper()
	simbatest.Must(n.t, n.conn.SetReadDeadline(time.Now().Add(simbatest.Patience)))
	b := make([]byte, 4096)
	for {
		size, err := n.conn.Read(b)
		if err != nil {
			n.t.Fatalf("the server reports no %s: %v; it reported %q", prefix, err, n.got)
		}
		lines := strings.Split(string(b[:size]), "\n")
		n.got = append(n.got, lines...)
		if i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, prefix) }); i >= 0 {
			return lines[i]
		}
	}
}

func TestReportsToSystemd(t *testing.T) {
	n := newNotifySocket(t)
	data := filepath.Join(t.TempDir(), "data")
	p := n.run([]string{"--addr", "127.0.0.1:0", "--data-dir", data}, []string{"WATCHDOG_USEC=2000000", "WATCHDOG_PID="})
	n.await("READY=1")
	p.Wants(t, `level=WARN msg="WatchdogSec is too short`) // it is below 10 s
	n.await("WATCHDOG=1")
	n.await("WATCHDOG=1")

	p.Signal(syscall.SIGHUP) // without TLS there is nothing to reload, but the server reports
	n.await("RELOADING=1")
	if clock := n.got[len(n.got)-1]; !strings.HasPrefix(clock, "MONOTONIC_USEC=") {
		t.Errorf("after RELOADING=1 the server reports %q, want MONOTONIC_USEC", clock)
	}
	n.await("READY=1")
	n.await("WATCHDOG=1")

	p.Signal(syscall.SIGTERM)
	n.await("STOPPING=1")
	if code := p.Wait(t); code != 0 {
		t.Errorf("the server exits with code %d, want 0:\n%s", code, p.Output())
	}
}

func TestWatchdogThatIsOffGetsNoReports(t *testing.T) {
	n := newNotifySocket(t)
	p := n.run([]string{"--addr", "127.0.0.1:0", "--data-dir", filepath.Join(t.TempDir(), "data")}, nil)
	n.await("READY=1")
	p.Signal(syscall.SIGTERM)
	n.await("STOPPING=1")
	if slices.ContainsFunc(n.got, func(r string) bool { return strings.HasPrefix(r, "WATCHDOG") }) {
		t.Errorf("the server reports to a watchdog that is off: %q", n.got)
	}
	p.Wait(t)
}
