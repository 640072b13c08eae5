package journal

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestACrashAtAnyMomentLosesNothingDurable drops records, too.
func TestTruncateRefusesToDropReleasedRecords(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	mustWrite(t, j, "record 1")
	mustClose(t, j)
	o.From = 1
	j = mustOpen(t, o)
	defer j.Close()
	mustWrite(t, j, "dropped")
	if err := j.Truncate(1); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, j, "record 2")
	if err := j.Release(1); err != nil {
		t.Fatal(err)
	}
	if err := j.Truncate(0); err == nil {
		t.Error("Truncate drops record 1, which was released")
	}
}

func TestASegmentHasRoomForAHeaderAndFrames(t *testing.T) {
	for size, want := range map[int64]int64{0: 2 * block, 1: 2 * block, 3*block - 1: 3 * block, 4 * block: 4 * block} {
		o := Options{SegmentSize: size}
		if o.roundSize(); o.SegmentSize != want {
			t.Errorf("for the option %d, segments have %d bytes, want %d", size, o.SegmentSize, want)
		}
	}
}

func TestAClosedJournalReturnsErrClosed(t *testing.T) {
	j := mustOpen(t, testOptions(vfs.NewMem()))
	mustClose(t, j)
	mustClose(t, j)
	_, err := j.Append(nil)
	for _, err := range []error{err, j.Sync(), j.Release(0)} {
		if !errors.Is(err, ErrClosed) {
			t.Errorf("a method of the closed journal returned %v, want ErrClosed", err)
		}
	}
}

// A sync also makes earlier records durable. A frame states the durable index when it is appended.
func TestASyncCoversEarlierAppends(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	defer mustClose(t, j)
	for i, step := range []struct {
		sync          bool
		durable, says uint64 // Durable after the step; the durable index in the new frame
	}{{false, 0, 0}, {false, 0, 0}, {true, 3, 0}, {false, 3, 3}, {true, 5, 3}, {false, 5, 5}} {
		p := position{file: segmentName(1), offset: j.offset, index: uint64(i) + 1}
		mustAppend(t, j, "record")
		if step.sync {
			mustSync(t, j)
		}
		if got := j.Durable(); got != step.durable {
			t.Errorf("after record %d, Durable is %d, want %d", p.index, got, step.durable)
		}
		if got := durableAt(t, o, p); got != step.says {
			t.Errorf("the frame of record %d states the durable index %d, want %d", p.index, got, step.says)
		}
	}
	mustRotate(t, j)
	if got := j.Durable(); got != 6 {
		t.Errorf("after a new segment, Durable is %d, want 6", got)
	}
}

// All concurrent methods run at the same time, for the race detector.
func TestEverythingAtATime(t *testing.T) {
	t.Run("memory", func(t *testing.T) { everythingAtATime(t, testOptions(vfs.NewMem())) })
	t.Run("disk", func(t *testing.T) {
		o := testOptions(vfs.Default)
		o.Dir = filepath.Join(t.TempDir(), "journal")
		everythingAtATime(t, o)
	})
}

func everythingAtATime(t *testing.T, o Options) {
	j := mustOpen(t, o)
	const records = 2000
	done := make(chan bool)
	var others sync.WaitGroup
	loop := func(do func() error) {
		others.Go(func() {
			for {
				if err := do(); err != nil {
					t.Error(err)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	checkpoint := uint64(0)
	loop(func() error {
		for r, err := range j.Records(checkpoint, j.FullIndex()) {
			if err != nil {
				return err
			}
			if checkpoint++; r.Index != checkpoint || string(r.Payload) != fmt.Sprint("record ", checkpoint) {
				return fmt.Errorf("Records yields record %d as %q, want record %d", r.Index, r.Payload, checkpoint)
			}
		}
		return j.Release(checkpoint)
	})
	loop(func() error {
		path, _ := j.Current()
		if full := j.FullIndex(); full > records || !strings.Contains(path, ".seg") {
			return fmt.Errorf("FullIndex is %d of %d records, and Current is %q", full, records, path)
		}
		return nil
	})
	for i := range records {
		mustAppend(t, j, fmt.Sprint("record ", i+1))
		if i%3 == 0 {
			mustSync(t, j)
		}
	}
	close(done)
	others.Wait()
	mustClose(t, j)
	o.From = checkpoint
	j = mustOpen(t, o)
	defer mustClose(t, j)
	wantPayloads(t, payloads(t, j, checkpoint), numbered(int(checkpoint)+1, records))
}
