package crash

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// BenchmarkMillionMutexes measures the memory and disk space of a million held mutexes, and how
// long a killed server takes to recover them.
//
//	go test -run '^$' -bench MillionMutexes -benchtime 1x ./tests/crash
func BenchmarkMillionMutexes(b *testing.B) {
	const n = 1_000_000
	for range b.N {
		dir := b.TempDir() + "/data"
		s := simbatest.StartIn(b, dir)
		empty := resident(b, s)
		began := time.Now()
		acquireMany(b, s.Addr, n)
		b.ReportMetric(n/time.Since(began).Seconds(), "acquires/s")
		b.ReportMetric((resident(b, s)-empty)/n, "RSS-B/mutex")
		b.ReportMetric(onDisk(b, dir)/n, "disk-B/mutex")
		s.Kill()

		began = time.Now()
		s = simbatest.StartIn(b, dir)
		b.ReportMetric(time.Since(began).Seconds(), "restart-s")
		b.ReportMetric((resident(b, s)-empty)/n, "RSS-B/mutex-restarted")
		mustHold(b, s.Addr, n)
		s.Kill()
	}
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

func acquireMany(b *testing.B, addr string, n int) {
	b.Helper()
	c, err := redis.Dial("tcp", addr)
	simbatest.Must(b, err)
	defer c.Close()
	const pipeline = 1000
	for i := 0; i < n; i += pipeline {
		for j := range pipeline {
			simbatest.Must(b, c.Send("SIMBA.ACQUIRE", fmt.Sprintf("m:%012d", i+j), "c", killTTL))
		}
		simbatest.Must(b, c.Flush())
		for range pipeline {
			if r, err := simbatest.ToRecord(c.Receive()); err != nil || r["status"] != "acquired" {
				b.Fatalf("SIMBA.ACQUIRE returns %v, %v, want acquired", r, err)
			}
		}
	}
}

// resident returns the memory of the process in bytes.
func resident(b *testing.B, s *simbatest.Server) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Pid()))
	simbatest.Must(b, err)
	match := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if match == nil {
		b.Fatalf("no VmRSS in %s", status)
	}
	kB, err := strconv.ParseFloat(string(match[1]), 64)
	simbatest.Must(b, err)
	return kB * 1024
}

func onDisk(b *testing.B, dir string) (bytes float64) {
	b.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += float64(info.Size())
		}
		return err
	})
	simbatest.Must(b, err)
	return bytes
}
