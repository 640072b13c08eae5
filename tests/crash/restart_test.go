package crash

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// BenchmarkRestart measures the start of a server with a million held mutexes, after an orderly
// stop and after a crash with a full journal.
//
//	go test -run '^$' -bench Restart -benchtime 5x ./tests/crash
func BenchmarkRestart(b *testing.B) {
	const mutexes = 1_000_000
	stopped, crashed := b.TempDir()+"/stopped", b.TempDir()+"/crashed"
	holdMany(b, stopped, mutexes)
	fillTheJournal(b, stopped, crashed, mutexes)
	for _, dir := range []string{stopped, crashed} {
		b.Run(filepath.Base(dir), func(b *testing.B) {
			var longest time.Duration
			for range b.N {
				b.StopTimer()
				data := copyOf(b, dir)
				b.StartTimer()
				began := time.Now()
				s := simbatest.StartIn(b, data)
				longest = max(longest, time.Since(began))
				b.StopTimer()
				mustHold(b, s.Addr, mutexes)
				s.Kill()
			}
			b.ReportMetric(longest.Seconds(), "longest-s")
		})
	}
}

func holdMany(b *testing.B, dir string, n int) {
	b.Helper()
	store, _, err := persist.Open(persist.Options{Dir: dir})
	simbatest.Must(b, err)
	began := persist.MachineBoot().Now()
	for i := range n {
		store.Append(grantOf(began, simba.Seq(i+1), i))
		if (i+1)%1000 == 0 {
			simbatest.Must(b, store.Commit(simba.Seq(i+1)))
		}
	}
	simbatest.Must(b, store.Close())
}

// fillTheJournal copies a data directory, with a journal that is full as after a crash. To fill it,
// it renews leases while the checkpoint cannot advance.
func fillTheJournal(b *testing.B, from, to string, n int) {
	b.Helper()
	released := make(chan struct{})
	var stalled atomic.Bool
	fsys := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if stalled.Load() && op.Kind == errorfs.OpCreate {
			<-released
		}
		return nil
	}))
	dir := copyOf(b, from)
	store, recovered, err := persist.Open(persist.Options{Dir: dir, FS: fsys})
	simbatest.Must(b, err)
	stalled.Store(true)
	seq, began, done := recovered.Seq, persist.MachineBoot().Now(), make(chan error, 1)
	for i := 0; ; i++ {
		seq++
		store.Append(grantOf(began, seq, i*7919%n))
		if i%100 != 0 {
			continue
		}
		go func() { done <- store.Commit(seq) }()
		select {
		case err := <-done:
			simbatest.Must(b, err)
			continue
		case <-time.After(3 * time.Second):
		}
		break
	}
	if out, err := exec.Command("cp", "-a", dir, to).CombinedOutput(); err != nil {
		b.Fatalf("cp -a: %v\n%s", err, out)
	}
	close(released)
	simbatest.Must(b, errors.Join(<-done, store.Close()))
}

func grantOf(began simba.Instant, seq simba.Seq, i int) simba.Change {
	lease := simba.Lease{
		Mutex: fmt.Sprintf("m:%012d", i), Owner: fmt.Sprintf("pod-%08x", uint32(i)*2654435761), Token: uint64(seq),
		Acquired: began, AcquiredAt: time.Now().UnixMilli(), TTL: time.Hour,
	}
	return simba.Change{Seq: seq, Kind: simba.ChangePut, Lease: lease, Events: []simba.Event{{
		Seq: seq, At: lease.AcquiredAt, Kind: simba.EventAcquired, Mutex: lease.Mutex, Owner: lease.Owner, Token: lease.Token,
	}}}
}

func copyOf(b *testing.B, dir string) string {
	b.Helper()
	to := b.TempDir() + "/data"
	if out, err := exec.Command("cp", "-a", dir, to).CombinedOutput(); err != nil {
		b.Fatalf("cp -a: %v\n%s", err, out)
	}
	syscall.Sync()
	return to
}

func mustHold(b *testing.B, addr string, n int) {
	b.Helper()
	c, err := redis.Dial("tcp", addr)
	simbatest.Must(b, err)
	defer c.Close()
	if held, err := redis.Int(c.Do("DBSIZE")); err != nil || held != n {
		b.Fatalf("after the restart DBSIZE returns %d, %v, want %d", held, err, n)
	}
}
