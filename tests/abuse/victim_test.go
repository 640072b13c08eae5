package abuse

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// victim is a server under abuse.
type victim struct {
	t        testing.TB
	addr     string
	password string // "" = none
	pid      int
	log      func() string
	eye      redis.Conn // for INFO
	others   []*bystander

	before figures // before the abuse
	quiet  int     // memory of the process before the abuse, in kB
	dialed int     // number of connections that the abuse has opened
}

// figures count what the server holds.
type figures struct {
	clients    int
	goroutines int
	files      int
	heap       int // bytes, with garbage
}

func (f figures) String() string {
	return fmt.Sprintf("%d clients, %d goroutines, %d files, %d KiB of heap", f.clients, f.goroutines, f.files, f.heap>>10)
}

// The server may hold this much more after an abuse than before. The store opens files and starts
// goroutines, and the heap varies. A leak would be far larger.
const (
	spareGoroutines = 32
	spareFiles      = 32
	spareHeap       = 12 << 20

	// Go's runtime keeps this many bytes of an ended goroutine and its socket for reuse.
	keptOfConnection = 2 << 10
)

// attacked starts a server, and bystanders that use it until the test ends.
func attacked(t testing.TB, args ...string) *victim {
	t.Helper()
	s := simbatest.Start(t, args...)
	return watched(t, s.Addr, "", s.Log)
}

// watched returns a victim for a running server, and starts bystanders.
func watched(t testing.TB, addr, password string, log func() string) *victim {
	t.Helper()
	v := &victim{t: t, addr: addr, password: password, log: log}
	t.Cleanup(func() {
		if all := log(); t.Failed() { // the log may have the reason
			t.Logf("the end of the server's log:\n%s", all[max(0, len(all)-4<<10):])
		}
	})
	v.eye = v.client()
	v.pid = v.info("process_id")
	v.bystanders()
	v.servesOthers() // now the bystanders are connected, and caches are warm
	v.before = v.figures()
	v.quiet = v.memory("VmRSS")
	return v
}

func (v *victim) client() redis.Conn {
	v.t.Helper()
	c, err := v.dialClient()
	simbatest.Must(v.t, err)
	v.t.Cleanup(func() { c.Close() })
	return c
}

func (v *victim) dialClient() (redis.Conn, error) {
	return redis.Dial("tcp", v.addr, redis.DialPassword(v.password),
		redis.DialConnectTimeout(simbatest.Patience), redis.DialReadTimeout(simbatest.Patience), redis.DialWriteTimeout(simbatest.Patience))
}

func (v *victim) info(field string) int {
	v.t.Helper()
	text, err := redis.String(v.eye.Do("INFO", "everything"))
	if err != nil {
		v.t.Fatalf("INFO: %v\n%s", err, v.log())
	}
	return number(v.t, text, `(?m)^`+field+`:(\d+)\r$`)
}

func (v *victim) figures() figures {
	v.t.Helper()
	files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", v.pid))
	simbatest.Must(v.t, err)
	return figures{v.info("connected_clients"), v.info("go_goroutines"), len(files), v.info("used_memory")}
}

// memory returns a line of /proc/<pid>/status in kB. VmRSS is the current memory of the process,
// and VmHWM the highest so far.
func (v *victim) memory(line string) int {
	v.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", v.pid))
	simbatest.Must(v.t, err)
	return number(v.t, string(status), line+`:\s+(\d+) kB`)
}

func (v *victim) cpu() time.Duration {
	v.t.Helper()
	text, err := redis.String(v.eye.Do("INFO", "cpu"))
	simbatest.Must(v.t, err)
	var sum float64
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		m := regexp.MustCompile(`(?m)^` + field + `:(\S+)\r$`).FindStringSubmatch(text)
		f, err := strconv.ParseFloat(m[1], 64)
		simbatest.Must(v.t, err)
		sum += f
	}
	return time.Duration(sum * float64(time.Second))
}

func number(t testing.TB, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no match of %s in:\n%s", pattern, text)
	}
	n, err := strconv.Atoi(m[1])
	simbatest.Must(t, err)
	return n
}

// costsAtMost fails the test if the highest memory of the process exceeds its memory before the
// abuse by more than the given bytes.
func (v *victim) costsAtMost(bytes int) {
	v.t.Helper()
	cost := (v.memory("VmHWM") - v.quiet) << 10
	v.t.Logf("the abuse cost at most %.1f MiB of memory; %.1f MiB are allowed", mib(cost), mib(bytes))
	if cost > bytes*raceCost {
		v.t.Errorf("the abuse cost %.1f MiB of memory, want at most %.1f MiB", mib(cost), mib(bytes*raceCost))
	}
}

func mib(bytes int) float64 { return float64(bytes) / (1 << 20) }

// until waits until happened returns true, and fails the test if this takes too long. what
// describes the event in the failure text.
func (v *victim) until(what string, happened func() bool) {
	v.t.Helper()
	simbatest.Await(v.t, what, happened)
}

// recovers waits until the server holds no more than before the abuse, or fails the test after a
// while. All clients of the abuse must have left. The bystanders still run.
func (v *victim) recovers() {
	v.t.Helper()
	var now figures
	end := time.Now().Add(simbatest.Patience)
	for {
		now = v.figures()
		b := v.before
		if now.clients <= b.clients && now.goroutines <= b.goroutines+spareGoroutines &&
			now.files <= b.files+spareFiles && now.heap <= b.heap+spareHeap+v.dialed*keptOfConnection {
			break
		}
		if time.Now().After(end) {
			v.t.Fatalf("the server still holds %v; before the abuse it held %v", now, b)
		}
		v.makeGarbage()
	}
	v.servesOthers()
	v.t.Logf("before: %v; after: %v", v.before, now)
}

// makeGarbage makes the garbage collector of the server run. Until it runs, garbage counts as used
// memory.
func (v *victim) makeGarbage() {
	v.t.Helper()
	simbatest.Do(v.t, v.eye, "EVAL", "local s for i = 1, 64 do s = string.rep('x', 1000000) end", 0)
}
