package abuse

import (
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestConnectionsLeaveTheStoreTheFilesThatItNeeds(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `ulimit -n 228; exec "$0" "$@"`, simbatest.Binary(t), "--addr", "127.0.0.1:0", "--data-dir", t.TempDir()+"/data")
	p := simbatest.RunCmd(t, cmd)
	addr := p.Wants(t, `msg=ready .*addr=(\S+)`)[1]
	p.Wants(t, `maxclients lowered .*maxclients=100 `)
	v := watched(t, addr, "", p.Output)
	conns := v.raws(500)
	refused := 0
	for _, c := range conns {
		if line, err := c.ask("PING\r\n"); err != nil || line != "+PONG" {
			refused++
		}
	}
	if want := len(conns) - (100 - v.before.clients); refused != want {
		t.Errorf("the server refuses %d connections, want %d", refused, want)
	}
	fill(t, v, 60_000) // enough for the store to create files
	v.servesOthers()
	v.costsAtMost(64 << 20)
	v.before.heap += 60_000 * 1 << 10
	v.before.files += 32
	hangUp(conns)
	v.recovers()
}

// With a store, the server would end when it cannot create a file, hence --durability memory. The
// test sets the limit of files at run time. A server that starts with a limit reserves a part of it
// for the store.
func TestWithoutFreeFilesItServesOnAndDoesNotSpin(t *testing.T) {
	t.Parallel()
	s := simbatest.New(t)
	p := simbatest.RunCmd(t, exec.Command(simbatest.Binary(t), "--addr", s.Addr, "--durability", "memory"))
	p.Wants(t, `msg=ready `)
	v := watched(t, s.Addr, "", p.Output)
	var was unix.Rlimit
	few := unix.Rlimit{Cur: uint64(v.before.files) + 10}
	simbatest.Must(t, unix.Prlimit(v.pid, unix.RLIMIT_NOFILE, nil, &was))
	few.Max = was.Max
	simbatest.Must(t, unix.Prlimit(v.pid, unix.RLIMIT_NOFILE, &few, nil))
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			c.Close()
		}
	})
	for range 50 { // the kernel accepts them all, but the server has files for few
		c, err := dialRaw(v.addr)
		simbatest.Must(t, err)
		conns = append(conns, c)
	}
	const refused = `cannot accept connections.*pause=(\S+)`
	p.Wants(t, refused)
	v.servesOthers()
	v.costsAtMost(16 << 20)

	// Measure without bystanders, and when the pauses have reached their full length.
	p.Wants(t, `cannot accept connections.*pause=1s`)
	v.dismiss()
	from, began, line := v.cpu(), time.Now(), p.Lines()
	for range 9 { // some pauses are short, since leaving bystanders free files
		_, line = p.WantsAfter(t, line, refused)
	}
	if used, took := v.cpu()-from, time.Since(began); used > took/2 {
		t.Errorf("the server used %v of processor time in %v, want at most half", used, took)
	} else {
		t.Logf("the server used %v of processor time in %v", used, took)
	}
	for _, m := range regexp.MustCompile(refused).FindAllStringSubmatch(p.Output(), -1) {
		if d, err := time.ParseDuration(m[1]); err != nil || d > time.Second {
			t.Errorf("the server pauses for %s, want at most 1s", m[1])
		}
	}

	// After the limit is raised, the server accepts the waiting connections by itself.
	simbatest.Must(t, unix.Prlimit(v.pid, unix.RLIMIT_NOFILE, &was, nil))
	for i, c := range conns {
		if line, err := c.(*raw).ask(words("ECHO", strconv.Itoa(i))); err != nil || line != fmt.Sprintf("$%d", len(strconv.Itoa(i))) {
			t.Fatalf("ECHO on connection %d returns %q, %v", i, line, err)
		}
		c.Close()
	}
	v.before.clients -= 3 // the bystanders
	v.recovers()
}
