package abuse

import (
	"os"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// idleCost bounds the memory of an idle connection in bytes: a goroutine's stack, a buffer, and the
// runtime's data about the socket.
const idleCost = 16 << 10

// Not parallel: beside other tests, the process of the test could exceed its limit of open files.
func TestTenThousandIdleConnectionsCostLittleAndDelayNoClient(t *testing.T) {
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
	v := attacked(t, "--maxclients", "12000")
	conns := v.raws(n)
	err := v.each(n/2, func(i int) error { // the other half sends nothing
		_, err := conns[i].ask("PING\r\n")
		return err
	})
	simbatest.Must(t, err)
	v.until("all are connected", func() bool { return v.info("connected_clients") == n+v.before.clients })
	v.servesOthers()
	t.Logf("each connection costs %d bytes of memory", (v.memory("VmRSS")-v.quiet)<<10/n)
	v.costsAtMost(n * idleCost)

	hangUp(conns)
	v.recovers()
}
