package journal

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// BenchmarkWrite measures an append with its sync, on the disk of the temporary directory. For
// comparison, it measures a synced batch of one row in Pebble.
func BenchmarkWrite(b *testing.B) {
	for _, size := range []int{100, 6 << 10} {
		payload := make([]byte, size)
		b.Run(fmt.Sprintf("journal/%dB", size), func(b *testing.B) {
			j := benchJournal(b)
			for b.Loop() {
				if _, err := j.Append(payload); err != nil {
					b.Fatal(err)
				}
				if err := j.Sync(); err != nil {
					b.Fatal(err)
				}
				if err := j.Release(j.FullIndex()); err != nil {
					b.Fatal(err)
				}
			}
			mustClose(b, j)
		})
		b.Run(fmt.Sprintf("pebble/%dB", size), func(b *testing.B) {
			db, err := pebble.Open(filepath.Join(b.TempDir(), "pebble"), &pebble.Options{FS: vfs.Default, Logger: quiet{}})
			if err != nil {
				b.Fatal(err)
			}
			batch := db.NewBatch()
			for b.Loop() {
				batch.Reset()
				if err := batch.Set([]byte("key"), payload, nil); err != nil {
					b.Fatal(err)
				}
				if err := db.Apply(batch, pebble.Sync); err != nil {
					b.Fatal(err)
				}
			}
			if err := db.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkAppend measures an append without a sync.
func BenchmarkAppend(b *testing.B) {
	j := benchJournal(b)
	payload := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.Append(payload); err != nil {
			b.Fatal(err)
		}
		if err := j.Release(j.FullIndex()); err != nil {
			b.Fatal(err)
		}
	}
	mustClose(b, j)
}

// BenchmarkOpen measures how long a full journal takes to open after kill -9, and to read.
func BenchmarkOpen(b *testing.B) {
	o := diskOptions(b)
	j := mustOpen(b, o)
	payload := make([]byte, 100)
	for range 400_000 { // 56 MB
		if _, err := j.Append(payload); err != nil {
			b.Fatal(err)
		}
	}
	mustSync(b, j)
	last := j.Durable()
	abandon(j)
	for b.Loop() {
		j := mustOpen(b, o)
		n := uint64(0)
		for _, err := range j.Records(0, j.FullIndex()) {
			if n++; err != nil {
				b.Fatal(err)
			}
		}
		if n != last {
			b.Fatalf("Records yields %d records, want %d", n, last)
		}
		abandon(j)
	}
	b.ReportMetric(float64(last), "records")
}

func diskOptions(b *testing.B) Options {
	o := testOptions(vfs.Default)
	o.Dir, o.SegmentSize = filepath.Join(b.TempDir(), "journal"), 16<<20
	return o
}

// benchJournal opens a journal that already reuses its files, as it would after a while.
func benchJournal(b *testing.B) *Journal {
	j := mustOpen(b, diskOptions(b))
	payload := make([]byte, 1<<20)
	for j.current.number < 8 {
		if _, err := j.Append(payload); err != nil {
			b.Fatal(err)
		}
		if err := j.Release(j.FullIndex()); err != nil {
			b.Fatal(err)
		}
	}
	mustSync(b, j)
	return j
}

type quiet struct{ pebble.Logger }

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
