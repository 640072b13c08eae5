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
)

// Ports of stores are below the kernel's range for outgoing connections (from 32768 on Linux).
// Otherwise an outgoing connection could take the port of a store that is down. A node of a Redis
// Cluster also needs the port 10,000 above its own.
const (
	firstPort = 11000
	lastPort  = 21999
	busOffset = 10000
)

var (
	portsMu sync.Mutex // guards given
	given   = make(map[int]net.Listener)
)

// FreePort returns a free port that no other store of this process has. On Linux, no other test
// process has it either.
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
	t.Fatal("find a free port: there is none")
	return 0
}

// reserve reserves a port for this process until it ends, by a name that the kernel gives only
// once.
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

// listen listens on a port of FreePort. A child process that another goroutine is starting holds
// this process' files for a moment. Among these files may be a listener on that port that was just
// closed.
func listen(addr string) (net.Listener, error) {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		l, err := net.Listen("tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
