package abuse

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestUnauthenticatedConnectionsAreCutAndMakeRoom(t *testing.T) {
	t.Parallel()
	const password, places = "secret", 1000
	s := simbatest.Start(t, "--requirepass", password, "--maxclients", fmt.Sprint(places))
	v := watched(t, s.Addr, password, s.Log)
	began := time.Now()
	conns := v.raws(places - v.before.clients)
	if line, err := v.raw().line(); err != nil || line != "-ERR max number of clients reached" {
		t.Errorf("a connection above maxclients gets %q, %v, want an error", line, err)
	}
	v.servesOthers()

	// Each connection sends a password byte by byte, until the server closes it.
	const slowly = "*2\r\n$4\r\nAUTH\r\n$16000\r\n"
	left := len(conns)
	for sent := 0; left > 0; sent++ {
		piece := "x"
		if sent < len(slowly) {
			piece = slowly[sent : sent+1]
		}
		left = 0
		for _, c := range conns {
			if c.send(piece) == nil {
				left++
			}
		}
		if time.Since(began) > simbatest.Patience {
			t.Fatalf("the server has not closed %d connections that never authenticated", left)
		}
		v.servesOthers()
	}
	t.Logf("the server closed all connections within %v", time.Since(began))
	if c := v.client(); c.Err() != nil {
		t.Errorf("after the abuse a new client fails: %v", c.Err())
	}
	v.before.clients++ // the client with the right password
	v.costsAtMost(len(conns) * 32 << 10)
	v.recovers()
}

func TestUnfinishedCommandsHoldAtMostTwiceTheirBytes(t *testing.T) {
	t.Parallel()
	v := attacked(t)
	conns := v.raws(50)
	const came = 900 << 10 // bytes of an incomplete command; the limit is 1 MiB
	body := strings.Repeat("x", came)
	simbatest.Must(t, v.each(len(conns), func(i int) error { return conns[i].send("*3\r\n$4\r\nEVAL\r\n$1000000\r\n" + body) }))
	v.until("the server has received all bytes", func() bool { return v.info("total_net_input_bytes") > len(conns)*came })
	v.servesOthers()
	// While a buffer grows, it exists twice, and once more as garbage.
	v.costsAtMost(len(conns)*3*came + 16<<20)
	hangUp(conns)
	v.recovers()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// ended waits until the server closes the connection. It ignores data that arrives before.
func (c *raw) ended() error {
	_, err := io.Copy(io.Discard, c.in)
	if isTimeout(err) {
		return err
	}
	return nil
}

// Not parallel: beside other tests, the process of the test could exceed its limit of open files.
func TestTenThousandConnectionsCostLittleAndDelayNoClient(t *testing.T) {
	n := 10_000
	var files syscall.Rlimit
	simbatest.Must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	if most := int(files.Cur) - 1000; n > most {
		if os.Getenv("CI") == "true" {
			t.Fatalf("the limit of open files is %d; %d connections need %d (ulimit -n)", files.Cur, n, n+1000)
		}
		t.Logf("NOT TESTED: %d connections, only %d, since the limit of open files is %d (ulimit -n)", n, most, files.Cur)
		n = most
	}
	// The cost is that of a goroutine's stack, a buffer, and the runtime's data about the socket. A
	// blocked connection also has a place in the queue.
	for name, test := range map[string]struct {
		cost int // bytes
		use  func(i int, c *raw) error
	}{
		"idle": {11 << 10, func(i int, c *raw) error {
			if i%2 == 0 { // the other half sends nothing
				return nil
			}
			_, err := c.ask("PING\r\n")
			return err
		}},
		"blocked": {16 << 10, func(i int, c *raw) error {
			return c.send(words("SIMBA.ACQUIRE", "crowded", fmt.Sprint("w", i), bystanderTTL, "WAIT", 0))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			v := attacked(t, "--maxclients", "16000")
			_, err := v.eye.Do("SIMBA.ACQUIRE", "crowded", "owner", bystanderTTL)
			simbatest.Must(t, err)
			conns := v.raws(n)
			simbatest.Must(t, v.each(n, func(i int) error { return test.use(i, conns[i]) }))
			v.until("all are connected", func() bool { return v.info("connected_clients") == n+v.before.clients })
			if name == "blocked" {
				v.until("all are blocked", func() bool { return v.info("blocked_clients") >= n })
			}
			v.servesOthers()
			t.Logf("each connection costs %d bytes of memory", (v.memory("VmRSS")-v.quiet)<<10/n)
			v.costsAtMost(n * test.cost)

			hangUp(conns)
			v.recovers()
		})
	}
}
