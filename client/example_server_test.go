package client_test

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

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "simba-resp-client"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(code)
}

// build returns the path of the server's program. The server is another module, in the folder above
// this one: the tests run it and import nothing of it.
var build = sync.OnceValue(func() string {
	path := filepath.Join(folder, "simba-resp")
	if out, err := exec.Command("go", "build", "-C", "..", "-o", path, "./cmd/simba-resp").CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build the server: %v\n%s", err, out))
	}
	return path
})

var ready = regexp.MustCompile(`msg=ready addr=(\S+)`)

// connect starts a server with an empty data directory, for an example, and returns a client
// of it. A real program makes one like this:
//
//	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
//	c, err := client.New(rdb, client.Options{})
func connect() (c *client.Client, done func()) {
	data, err := os.MkdirTemp(folder, "data")
	check(err)
	server := exec.Command(build(), "--addr", "127.0.0.1:0", "--data-dir", data, "--durability", "async")
	stderr, err := server.StderrPipe()
	check(err)
	check(server.Start())
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
	check(err)
	return c, func() {
		err := errors.Join(c.Close(), rdb.Close(), server.Process.Signal(syscall.SIGTERM))
		<-logged
		check(errors.Join(err, server.Wait()))
	}
}

// check ends an example that fails.
func check(err error) {
	if err != nil {
		panic(err)
	}
}
