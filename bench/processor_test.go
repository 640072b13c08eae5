package main

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

func TestProcessorTimeIsTheSumOfTheFieldsUtimeStimeCutimeAndCstime(t *testing.T) {
	// Field 14, utime, is 1234. The next fields, stime, cutime and cstime, are 567, 31 and 32.
	const stat = "4711 (a) b (c d) S 1 4711 4711 0 -1 4194560 88210 99 7 8 1234 567 31 32 20 0 9 0 5163 1271300096 30010 18446744073709551615\n"
	got, err := timeOf(stat)
	if want := 18640 * time.Millisecond; err != nil || got != want {
		t.Errorf("timeOf returns %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "4711 (cut) S 1 4711", "1 (x) S 1 1 1 0 -1 1 1 1 1 1 many 567 31"} {
		if got, err := timeOf(bad); err == nil {
			t.Errorf("timeOf(%q) returns %v, want an error", bad, got)
		}
	}
}

func TestProcessorTimeGrowsWhileAProcessComputes(t *testing.T) {
	before, err := processorTime(os.Getpid())
	must(t, err)
	const enough = 10 * tick
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		now, err := processorTime(os.Getpid())
		must(t, err)
		if now-before >= enough {
			return
		}
	}
	t.Errorf("processorTime grows by less than %v within a minute of computing", enough)
}

func TestTimeOfChildrenGrowsWhileAChildComputes(t *testing.T) {
	child := exec.Command("sh", "-c", "while :; do :; done")
	must(t, child.Start())
	defer child.Wait()
	defer child.Process.Kill()
	for end := time.Now().Add(need.Hang); timeOfChildren(os.Getpid()) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timeOfChildren is 0, although a child computes")
		}
	}
}
