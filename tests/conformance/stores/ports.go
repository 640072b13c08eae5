package stores

import (
	"errors"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

// Ports of stores are below the kernel's range for outgoing connections (from 32768 on Linux).
// Otherwise an outgoing connection could take the port of a store that is down. A node of a Redis
// Cluster needs a second port, which is busOffset above the first.
const (
	firstPort = 11000
	lastPort  = 21999
	busOffset = 10000
)

var (
	portsMu sync.Mutex // guards given
	given   = make(map[int]net.Listener)
)

// FreePort returns a free port that it has not returned before in this process. On Linux, it
// returns no port of another test process either.
func FreePort(t TB) int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if reserve(port) && reserve(port+busOffset) && free(port) && free(port+busOffset) {
			return port
		}
	}
	t.Fatal("FreePort found no free port in 1000 tries")
	return 0
}

// reserve reserves a port until this process ends. On Linux it binds a socket name, which only one
// process can have.
func reserve(port int) bool {
	if _, ok := given[port]; ok {
		return false
	}
	var name net.Listener
	if runtime.GOOS == "linux" {
		var err error
		if name, err = net.Listen("unix", "@simba-resp-tests-port-"+strconv.Itoa(port)); err != nil {
			return false
		}
	}
	given[port] = name
	return true
}

func free(port int) bool {
	if runtime.GOOS == "linux" { // elsewhere Listen takes this lock itself
		syscall.ForkLock.RLock() // see listen
		defer syscall.ForkLock.RUnlock()
	}
	l, err := net.Listen("tcp", local(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// listen listens on a port of FreePort. It retries if the port is in use: a child process that is
// just starting may hold a listener that this process has closed.
func listen(addr string) (net.Listener, error) {
	for end := time.Now().Add(need.Hang); ; time.Sleep(time.Millisecond) {
		l, err := net.Listen("tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
