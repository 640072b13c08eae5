package stores

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Ports of stores lie below those that the kernel gives to outgoing connections
// (32768 and more on Linux): else one could take the port of a store that is down
// for a moment. A node of a Redis Cluster needs the port 10,000 above its own too.
const (
	firstPort = 11000
	lastPort  = 21999
	busOffset = 10000
)

var (
	portsMu sync.Mutex // guards given
	given   = make(map[int]bool)
)

// FreePort returns a port that nobody listens on and that no other store of this
// process was given.
func FreePort(t TB) int {
	t.Helper()
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !given[port] && free(port) && free(port+busOffset) {
			given[port] = true
			return port
		}
	}
	t.Fatal("find a free port: there is none")
	return 0
}

func free(port int) bool {
	l, err := net.Listen("tcp", local(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
