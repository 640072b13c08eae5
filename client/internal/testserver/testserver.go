// Package testserver runs the server as a process, for the examples of the client. The server is
// another module, in the folder above the client's, which the examples must not import.
package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

// folder is a temporary folder for the server's program and the data directories.
var folder string

// Main runs the tests of a package, and removes the temporary folder. TestMain calls it.
func Main(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "simba-resp-client"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// build builds the server's program once and returns its path.
var build = sync.OnceValue(func() string {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		panic(err)
	}
	root := filepath.Dir(filepath.Dir(string(mod)))
	path := filepath.Join(folder, "simba-resp")
	if out, err := exec.Command("go", "build", "-C", root, "-o", path, "./cmd/simba-resp").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the server: %v\n%s", err, out))
	}
	return path
})

var ready = regexp.MustCompile(`msg=ready addr=(\S+)`)

// patience limits each wait for the server. It is long, for busy machines.
const patience = 10 * time.Minute

// Connect starts a server with an empty data directory, and returns a client of it. done stops the
// client and the server.
func Connect() (c *client.Client, done func()) { return ConnectWith(client.Options{}) }

// ConnectWith is Connect with options of the client.
func ConnectWith(o client.Options) (c *client.Client, done func()) {
	data, err := os.MkdirTemp(folder, "data")
	Check(err)
	s := start(exec.Command(build(), "--addr", "127.0.0.1:0", "--data-dir", data, "--durability", "async"))
	rdb := redis.NewClient(&redis.Options{Addr: s.addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	c, err = client.New(rdb, o)
	Check(err)
	return c, func() {
		err := errors.Join(c.Close(), rdb.Close(), s.cmd.Process.Signal(syscall.SIGTERM))
		select {
		case <-s.exited:
			Check(errors.Join(err, s.err))
		case <-time.After(patience):
			panic(fmt.Sprintf("the server does not exit: %v", err))
		}
	}
}

// server is a process that serves at addr.
type server struct {
	cmd    *exec.Cmd
	addr   string
	exited chan struct{}
	err    error // the error of cmd.Wait; read it when exited is closed
}

// start starts a server and waits until it serves. It panics if the server ends first.
func start(cmd *exec.Cmd) *server {
	s := &server{cmd: cmd, exited: make(chan struct{})}
	stderr, err := cmd.StderrPipe()
	Check(err)
	cmd.SysProcAttr = dieWithParent()
	started, addr := make(chan error), make(chan string, 1)
	var log strings.Builder // only the goroutine uses it before exited is closed
	// The kernel kills the server when the thread that has started it ends (dieWithParent). So this
	// goroutine keeps its thread until the server has ended.
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			fmt.Fprintln(&log, lines.Text())
			if m := ready.FindStringSubmatch(lines.Text()); m != nil {
				addr <- m[1]
				break
			}
		}
		_, _ = io.Copy(io.Discard, stderr)
		s.err = cmd.Wait()
		close(s.exited)
	}()
	Check(<-started)
	select {
	case s.addr = <-addr:
		return s
	case <-s.exited:
		panic(fmt.Sprintf("the server ended before it served: %v\n%s", s.err, &log))
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-s.exited
		panic(fmt.Sprintf("the server did not serve in %v:\n%s", patience, &log))
	}
}

// Check panics if err is not nil. An example has no testing.T to fail.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}
