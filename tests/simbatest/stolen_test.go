package simbatest_test

import (
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestStolenTimeIsTheMostThatOneProcessorLost(t *testing.T) {
	const ms = time.Millisecond
	earlier, later := simbatest.Stolen{10 * ms, 500 * ms}, simbatest.Stolen{60 * ms, 530 * ms}
	if d := later.Since(earlier); d != 50*ms {
		t.Errorf("of 50 ms and 30 ms, Since returns %v, want 50 ms", d)
	}
	if d := later.Since(nil); d != 0 {
		t.Errorf("without an earlier reading, Since returns %v, want 0", d)
	}
	a := simbatest.StolenSoFar()
	if d := simbatest.StolenSoFar().Since(a); d < 0 {
		t.Errorf("stolen time decreased: %v", d)
	}
}
