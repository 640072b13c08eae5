package abuse

import (
	"os"
	"syscall"
	"testing"
)

// idleCost limits the memory of an idle connection: its goroutine's stack, a buffer, and what the
// runtime keeps of a socket. It is the server's part, without the kernel's.
const idleCost = 16 << 10

// Not parallel: the test's process may not open so many files together with other tests.
func TestTenThousandIdleConnectionsCostLittleAndDelayNoClient(t *testing.T) {
	n := 10_000
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if most := int(files.Cur) - 1000; n > most {
		if os.Getenv("CI") == "true" {
			t.Fatalf("only %d files may be opened here, and %d connections need %d: ulimit -n", files.Cur, n, n+1000)
		}
		t.Logf("NOT TESTED: %d connections, only %d: no more than %d files may be opened here (ulimit -n)", n, most, files.Cur)
		n = most
	}
	v := attacked(t, "--maxclients", "12000")
	conns := v.raws(n)
	err := v.each(n/2, func(i int) error { // the others send nothing at all
		_, err := conns[i].ask("PING\r\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	v.until("all are connected", func() bool { return v.info("connected_clients") == n+v.before.clients })
	v.servesOthers()
	t.Logf("%d B of memory a connection", (v.memory("VmRSS")-v.quiet)<<10/n)
	v.costsAtMost(n * idleCost)

	hangUp(conns)
	v.recovers()
}
