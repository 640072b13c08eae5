package persist

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// BenchmarkCommit measures grants on disk, which several clients append and commit at a time.
func BenchmarkCommit(b *testing.B) {
	for _, mode := range []Mode{Always, Async} {
		for _, clients := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%v/clients=%d", mode, clients), func(b *testing.B) {
				o := diskOptions(b)
				o.Mode, o.SyncEvery, o.SegmentSize = mode, 0, 0
				s, _ := openClosed(b, o)
				commitByMany(b, s, clients)
				st := s.Stats()
				b.ReportMetric(float64(st.Changes)/float64(st.Commits), "changes/fsync")
			})
		}
	}
}

func commitByMany(b *testing.B, s *Store, clients int) {
	var (
		mu  sync.Mutex
		seq simba.Seq
		wg  sync.WaitGroup
	)
	b.ReportAllocs()
	b.ResetTimer()
	for c := range clients {
		wg.Go(func() {
			ch := put(1, fmt.Sprint("mutex-", c))
			for range (b.N + clients - 1 - c) / clients {
				mu.Lock()
				seq++
				ch.Seq, ch.Events[0].Seq, ch.Lease.Token = seq, seq, uint64(seq)
				s.Append(ch)
				mu.Unlock()
				if err := s.Commit(ch.Seq); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkAppend measures Append, which the engine calls while it holds a lock.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []Mode{Always, Async} {
		b.Run(mode.String(), func(b *testing.B) {
			o := testOptions(b, vfs.NewMem(), mode)
			o.SegmentSize = 0
			s, _ := openClosed(b, o)
			ch := put(1, "mutex")
			b.ReportAllocs()
			for seq := simba.Seq(1); b.Loop(); seq++ {
				ch.Seq, ch.Events[0].Seq = seq, seq
				s.Append(ch)
				if seq%1000 == 0 {
					b.StopTimer()
					mustCommit(b, s, seq)
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkRecovery measures how long a store with a million leases takes to open, and to read
// them.
func BenchmarkRecovery(b *testing.B) {
	o := diskOptions(b)
	o.SyncEvery, o.SegmentSize = 0, 0
	s, _ := mustOpen(b, o)
	const leases = 1_000_000
	for seq := simba.Seq(1); seq <= leases; seq++ {
		scattered := uint64(seq) * 7919 % leases
		ch := put(seq, fmt.Sprintf("m:%012d", scattered))
		ch.Lease.Owner = fmt.Sprintf("pod-%08x", scattered*2654435761)
		ch.Lease.Acquired = simba.Instant(seq * 1_234_567)
		ch.Lease.AcquiredAt += int64(seq)
		s.Append(ch)
		if seq%1000 == 0 {
			mustCommit(b, s, seq)
		}
	}
	mustClose(b, s)
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		s, r := mustOpen(b, o)
		b.ReportMetric(time.Since(start).Seconds(), "s/open")
		n := 0
		for _, err := range r.Leases {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != leases {
			b.Fatalf("Open recovered %d leases, want %d", n, leases)
		}
		mustClose(b, s)
	}
	b.StopTimer()
	b.ReportMetric(float64(diskBytes(b, o.Dir))/leases, "diskB/lease")
}

// BenchmarkShortLocks acquires and releases different mutexes, and reports the bytes on disk.
func BenchmarkShortLocks(b *testing.B) {
	o := diskOptions(b)
	o.SegmentSize = 0
	s, _ := mustOpen(b, o)
	seq := simba.Seq(0)
	for b.Loop() {
		for range 100 {
			s.Append(put(seq+1, fmt.Sprint("m", seq)))
			s.Append(del(seq+2, fmt.Sprint("m", seq)))
			seq += 2
		}
		mustCommit(b, s, seq)
	}
	b.ReportMetric(float64(diskBytes(b, o.Dir))/(1<<20), "diskMiB")
	mustClose(b, s)
	start := time.Now()
	s, r := mustOpen(b, o)
	for l, err := range r.Leases {
		b.Errorf("Open recovered the released lease %v, %v", l, err)
	}
	b.ReportMetric(time.Since(start).Seconds(), "s/open")
	mustClose(b, s)
}

func diskBytes(b *testing.B, dir string) (n int64) {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil { // a compaction may have removed the file
			n += info.Size()
		}
	}
	return n
}
