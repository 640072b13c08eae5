package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestACommitThatMeetsACheckpointCountsForIt(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var commits []commit
	add := func(from, to int) { commits = append(commits, commit{at(from), at(to).Sub(at(from))}) }
	add(5, 15)   // meets the end of the checkpoint before: belongs to neither
	add(20, 99)  // between
	add(30, 100) // between: it ended as the checkpoint began
	add(95, 101) // begun before it
	add(110, 130)
	add(190, 300) // ended after it
	add(200, 207) // behind it
	during, between := span{at(100), at(200)}.split(at(10), commits)
	if want := (simbatest.Latencies{6e6, 20e6, 110e6}); !slices.Equal(during, want) {
		t.Errorf("during it are %v, not %v", []time.Duration(during), []time.Duration(want))
	}
	if want := (simbatest.Latencies{79e6, 70e6}); !slices.Equal(between, want) {
		t.Errorf("between are %v, not %v", []time.Duration(between), []time.Duration(want))
	}
}

func TestACheckpointLastsFromANewSegmentToANewManifest(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("MANIFEST-000001", 1)
	write("journal/0000000001.seg", 0)
	if spans, err := watchCheckpoints(dir, 1, time.Now().Add(20*time.Millisecond)); err == nil {
		t.Errorf("nothing happens, but there are %v", spans)
	}
	var spans []span
	var err error
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		spans, err = watchCheckpoints(dir, 2, time.Now().Add(time.Minute))
	}()
	for i := 2; ; i++ { // until the watch has begun, and has looked in time
		write(fmt.Sprintf("journal/%010d.seg", i), 0)
		write("MANIFEST-000001", i)
		select {
		case <-seen:
		case <-time.After(time.Millisecond):
			continue
		}
		break
	}
	if err != nil || len(spans) != 2 || spans[0].to.Before(spans[0].from) || spans[1].from.Before(spans[0].to) {
		t.Errorf("seen were %v, %v", spans, err)
	}
}
