package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestACommitThatOverlapsACheckpointCountsForIt(t *testing.T) {
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	var commits []commit
	add := func(from, to int) { commits = append(commits, commit{at(from), at(to).Sub(at(from))}) }
	add(5, 15)   // overlaps the previous checkpoint: in neither list
	add(20, 99)  // between the checkpoints
	add(30, 100) // between the checkpoints: ends when the checkpoint begins
	add(95, 101) // during: begins before the checkpoint
	add(110, 130)
	add(190, 300) // during: ends after the checkpoint
	add(200, 207) // after the checkpoint: in neither list
	during, between := span{at(100), at(200)}.split(at(10), commits)
	if want := (simbatest.Latencies{6e6, 20e6, 110e6}); !slices.Equal(during, want) {
		t.Errorf("the commits during the checkpoint are %v, want %v", []time.Duration(during), []time.Duration(want))
	}
	if want := (simbatest.Latencies{79e6, 70e6}); !slices.Equal(between, want) {
		t.Errorf("the commits between the checkpoints are %v, want %v", []time.Duration(between), []time.Duration(want))
	}
}

func TestACheckpointLastsFromANewSegmentToTheNextFlush(t *testing.T) {
	dir := t.TempDir()
	flush, compaction := []byte{3, 9, 4, 9, 103, 0}, []byte{3, 9, 6, 0, 9, 103, 6}
	// Replaces the manifest at once: half a manifest would show fewer flushes for a moment.
	writeManifest := func(edits ...[]byte) {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, "next"))
		must(t, err)
		w := record.NewWriter(f)
		for _, edit := range edits {
			if _, err := w.WriteRecord(edit); err != nil {
				t.Fatal(err)
			}
		}
		must(t, errors.Join(w.Close(), f.Close(), os.Rename(f.Name(), filepath.Join(dir, "MANIFEST-000001"))))
	}
	write := func(name string, size int) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600))
	}
	must(t, os.Mkdir(filepath.Join(dir, "journal"), 0o700))
	writeManifest(flush)
	write("journal/0000000001.seg", 0)
	if spans, err := watchCheckpoints(dir, 1, time.Now().Add(20*time.Millisecond)); err == nil {
		t.Errorf("without a change, watchCheckpoints returns %v, want none", spans)
	}
	go func() {
		time.Sleep(5 * time.Millisecond)
		write("journal/0000000002.seg", 0)
		time.Sleep(5 * time.Millisecond)
		writeManifest(flush, compaction)
	}()
	if spans, err := watchCheckpoints(dir, 1, time.Now().Add(50*time.Millisecond)); err == nil {
		t.Errorf("after only a compaction, watchCheckpoints returns %v, want none", spans)
	}
	var spans []span
	var err error
	seen := make(chan struct{})
	go func() {
		defer close(seen)
		spans, err = watchCheckpoints(dir, 2, time.Now().Add(time.Minute))
	}()
	// watchCheckpoints polls, so repeat the changes until it has seen two checkpoints.
	for i := 3; ; i++ {
		write(fmt.Sprintf("journal/%010d.seg", i), 0)
		writeManifest(slices.Repeat([][]byte{compaction, flush}, i)...)
		select {
		case <-seen:
		case <-time.After(time.Millisecond):
			continue
		}
		break
	}
	if err != nil || len(spans) != 2 || spans[0].to.Before(spans[0].from) || spans[1].from.Before(spans[0].to) {
		t.Errorf("watchCheckpoints returns %v, %v, want two checkpoints", spans, err)
	}
}

// isFlush depends on an internal format of Pebble. So this test reads manifests that Pebble has
// written.
func TestACompactionOfPebbleIsNoFlush(t *testing.T) {
	dir := t.TempDir()
	db, err := pebble.Open(dir, &pebble.Options{DisableWAL: true, DisableAutomaticCompactions: true})
	must(t, err)
	defer db.Close()
	manifest := func() (file, flushes) {
		m, err := newest(filepath.Join(dir, "MANIFEST-*"))
		must(t, err)
		found, err := readFlushes(filepath.Join(dir, m.name))
		must(t, err)
		return m, found
	}
	_, before := manifest()
	for i := range 5 {
		for j := range 100 {
			must(t, db.Set(fmt.Appendf(nil, "key %d", j), []byte{byte(i)}, pebble.NoSync))
		}
		must(t, db.Flush())
		_, after := manifest()
		if after.count != before.count+1 {
			t.Errorf("flush %d: readFlushes counts %d after it, %d before it, want one more", i+1, after.count, before.count)
		}
		before = after
	}
	was, _ := manifest()
	must(t, db.Compact(t.Context(), []byte("a"), []byte("z"), false))
	is, after := manifest()
	if is == was {
		t.Error("the compaction has not changed the manifest, so the test proves nothing")
	}
	if after != before {
		t.Errorf("after the compaction readFlushes returns %+v, want %+v as before it", after, before)
	}
}
