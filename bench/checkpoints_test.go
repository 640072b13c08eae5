package main

import (
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
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "journal"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("MANIFEST-000001", "a")
	write("journal/0000000001.seg", "")
	if spans, err := watchCheckpoints(dir, 1, time.Now().Add(20*time.Millisecond)); err == nil {
		t.Errorf("nothing happens, but there are %v", spans)
	}
	type result struct {
		spans []span
		err   error
	}
	seen := make(chan result, 1)
	go func() {
		spans, err := watchCheckpoints(dir, 1, time.Now().Add(time.Minute))
		seen <- result{spans, err}
	}()
	const long = 50 * time.Millisecond
	time.Sleep(long) // the watch has begun; that a busy machine begins it later makes no checkpoint shorter
	write("MANIFEST-000001", "ab")
	write("journal/0000000002.seg", "")
	time.Sleep(long)
	write("MANIFEST-000001", "abc")
	got := <-seen
	if got.err != nil || len(got.spans) != 1 {
		t.Fatalf("seen were %v, %v", got.spans, got.err)
	}
}
