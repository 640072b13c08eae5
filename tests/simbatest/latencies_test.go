package simbatest_test

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestAQuantileIsTheShortestThatTheFractionDoesNotExceed(t *testing.T) {
	var l simbatest.Latencies
	if q := l.Quantile(0.999); q != 0 {
		t.Errorf("a quantile of no durations is %v, want 0", q)
	}
	for i := range 1000 {
		l = append(l, time.Duration(1000-i)) // 1 to 1000, the longest first
	}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 500, 0.99: 990, 0.999: 999, 1: 1000} {
		if got := l.Quantile(q); got != want {
			t.Errorf("the quantile %v of 1 to 1000 is %v, want %v", q, got, want)
		}
	}
	if q := l[:10].Quantile(0.999); q != 1000 {
		t.Errorf("p99.9 of ten durations is %v, want the longest", q)
	}
}
