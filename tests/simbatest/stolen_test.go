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
		t.Errorf("of 50 and 30 ms it is %v", d)
	}
	if d := later.Since(nil); d != 0 {
		t.Errorf("since a reading that there was not it is %v", d)
	}
	a := simbatest.StolenSoFar()
	if d := simbatest.StolenSoFar().Since(a); d < 0 {
		t.Errorf("it is taken back: %v", d)
	}
}
