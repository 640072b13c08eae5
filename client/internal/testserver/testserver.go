// Package testserver runs the server for the examples. The server is another module, in the
// folder above this one: the examples run it as a process and import nothing of it.
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
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

// folder is where build puts the server.
var folder string

// Main runs the tests of a package.
func Main(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "simba-resp-client"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// build returns the path of the server's program.
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

// Connect starts a server with an empty data directory, and returns a client of it. done stops
// both.
func Connect() (c *client.Client, done func()) {
	data, err := os.MkdirTemp(folder, "data")
	Check(err)
	server := exec.Command(build(), "--addr", "127.0.0.1:0", "--data-dir", data, "--durability", "async")
	stderr, err := server.StderrPipe()
	Check(err)
	Check(server.Start())
	addr := ""
	for log := bufio.NewScanner(stderr); addr == "" && log.Scan(); {
		if m := ready.FindStringSubmatch(log.Text()); m != nil {
			addr = m[1]
		}
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		_, _ = io.Copy(io.Discard, stderr)
	}()
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true, DisableIdentity: true})
	c, err = client.New(rdb, client.Options{})
	Check(err)
	return c, func() {
		err := errors.Join(c.Close(), rdb.Close(), server.Process.Signal(syscall.SIGTERM))
		<-logged
		Check(errors.Join(err, server.Wait()))
	}
}

// Check ends an example that fails.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}
