package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

func TestASmallHeapMayGrowByMoreThanALargeOne(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	paceCollector()
	if p := percent(); p != growth(0) || p < 100*collectorRoom/emptyHeap {
		t.Fatalf("at first by %d percent", p)
	}
	for _, live := range []uint64{0, 10 << 20, 20 << 20, 1 << 40} {
		p := growth(live)
		if room := max(live, emptyHeap) / 100 * uint64(p); p < collectorPercent || room < collectorRoom*98/100 || p > collectorPercent && room > collectorRoom {
			t.Errorf("%d bytes may grow by %d percent", live, p)
		}
	}
	large := make([]byte, 100<<20)
	becomes(t, func(p int) bool { return p == collectorPercent })
	runtime.KeepAlive(large)
	becomes(t, func(p int) bool { return p > collectorPercent })
}

// becomes collects until the heap may grow as that says.
func becomes(t *testing.T, is func(percent int) bool) {
	t.Helper()
	for range 1000 {
		if is(percent()) {
			return
		}
		runtime.GC()
		runtime.Gosched()
	}
	t.Fatalf("the heap may grow by %d percent", percent())
}

func percent() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}
