package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/record"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// renewing is how many clients renew mutexes while checkpoints are measured.
const renewing = 64

// mostCheckpoints bounds the number of measured checkpoints. About 10 s of renewals cause one.
const mostCheckpoints = 3

const checkpointsLast = 90 * time.Second // longest wait for all checkpoints

// checkpoints measures commits during each of n checkpoints and before it. Each client renews one
// mutex after the other, so that each checkpoint has many rows.
func (b *bench) checkpoints(addr, dataDir string, mutexes, n int) error {
	var over atomic.Bool
	var all sync.WaitGroup
	commits, errs := make([][]commit, renewing), make([]error, renewing)
	for i := range renewing {
		all.Go(func() { commits[i], errs[i] = renew(addr, i, mutexes, &over) })
	}
	time.Sleep(warmUp)
	began := time.Now()
	spans, err := watchCheckpoints(dataDir, n, began.Add(checkpointsLast))
	over.Store(true)
	all.Wait()
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	for round, s := range spans {
		during, between := s.split(began, slices.Concat(commits...))
		began = s.to
		b.say("checkpoint of %.0f ms: p99.9 of a commit meanwhile is %.2f ms (%d commits), before the checkpoint %.2f ms (%d commits)",
			inMS(s.to.Sub(s.from)), inMS(during.Quantile(0.999)), len(during), inMS(between.Quantile(0.999)), len(between))
		b.add(round, key{commitDuring, always, renewing}, inMS(during.Quantile(0.999)))
		b.add(round, key{commitBetween, always, renewing}, inMS(between.Quantile(0.999)))
	}
	return nil
}

// commit is a renewal, from the request to the reply, which the server sends after the fsync.
type commit struct {
	began time.Time
	took  time.Duration
}

// renew renews every 64th mutex in a loop, until over is true.
func renew(addr string, first, mutexes int, over *atomic.Bool) (all []commit, err error) {
	w, err := dial(addr, checkpointsLast+patience)
	if err != nil {
		return nil, err
	}
	defer w.close()
	for i := first; !over.Load(); i += renewing {
		command := guard(i % mutexes)
		began := time.Now()
		if _, err := w.ask(command); err != nil {
			return nil, err
		}
		all = append(all, commit{began, time.Since(began)})
	}
	return all, nil
}

type span struct{ from, to time.Time }

// split returns the durations of the commits that overlap the span. It also returns those of
// commits that began later than after, and ended before the span.
func (s span) split(after time.Time, commits []commit) (during, between simbatest.Latencies) {
	for _, c := range commits {
		switch ended := c.began.Add(c.took); {
		case c.began.Before(s.to) && ended.After(s.from):
			during = append(during, c.took)
		case c.began.After(after) && !ended.After(s.from):
			between = append(between, c.took)
		}
	}
	return during, between
}

// watchCheckpoints returns the spans of the next n checkpoints, or of fewer if the time is up. A
// checkpoint begins when the journal has a new segment, since the one before is full. It ends when
// Pebble's manifest has one more flush.
func watchCheckpoints(dataDir string, n int, until time.Time) (spans []span, err error) {
	segments, manifests := filepath.Join(dataDir, "journal", "*.seg"), filepath.Join(dataDir, "MANIFEST-*")
	segment, err := newest(segments)
	if err != nil {
		return nil, err
	}
	var manifest file // at the last reading
	var flushed, before flushes
	var began time.Time
	for running := false; len(spans) < n && time.Now().Before(until); time.Sleep(time.Millisecond) {
		m, err := newest(manifests)
		if err != nil {
			return nil, err
		}
		if m != manifest {
			if flushed, err = readFlushes(filepath.Join(dataDir, m.name)); err != nil {
				return nil, err
			}
			manifest = m
		}
		if running && flushed != before {
			spans, running = append(spans, span{began, time.Now()}), false
		}
		s, err := newest(segments)
		if err != nil {
			return nil, err
		}
		if !running && s.name != segment.name {
			segment, before, began, running = s, flushed, time.Now(), true
		}
	}
	if len(spans) == 0 {
		return nil, fmt.Errorf("no checkpoint within %v", checkpointsLast)
	}
	return spans, nil
}

type flushes struct {
	manifest string
	count    int
}

// readFlushes counts the flushes in a manifest. An incomplete edit at the end does not count.
func readFlushes(path string) (flushes, error) {
	f, err := os.Open(path)
	if err != nil {
		return flushes{}, err
	}
	defer f.Close()
	found := flushes{manifest: path}
	for edits := record.NewReader(f, 0); ; {
		edit, err := edits.Next()
		if err != nil { // the end of the manifest
			return found, nil
		}
		if isFlush(bufio.NewReader(edit)) {
			found.count++
		}
	}
}

// isFlush reports whether an edit of a manifest adds a table and removes none. (A compaction
// removes tables.) An edit is a list of tagged values: numbers first, then removed tables, then
// added tables. See VersionEdit.Encode in Pebble.
func isFlush(edit io.ByteReader) bool {
	const (
		lastNumberTag    = 4 // the largest tag of a number, except 9
		prevLogNumberTag = 9
		newTableTag      = 7
		newTableTags     = 100 // the first of five: 100 to 104
	)
	for {
		tag, err := binary.ReadUvarint(edit)
		switch {
		case err != nil || tag == 1: // no table, or the first edit, which lists all tables
			return false
		case tag == newTableTag || newTableTags <= tag && tag <= newTableTags+4:
			return true
		case tag > lastNumberTag && tag != prevLogNumberTag:
			return false
		}
		if _, err := binary.ReadUvarint(edit); err != nil {
			return false
		}
	}
}

type file struct {
	name string
	size int64
}

// newest returns the matching file whose name sorts last.
func newest(pattern string) (file, error) {
	names, err := filepath.Glob(pattern)
	if err != nil {
		return file{}, err
	}
	if len(names) == 0 {
		return file{}, fmt.Errorf("no file matches %s", pattern)
	}
	info, err := os.Stat(slices.Max(names))
	if err != nil {
		return file{}, err
	}
	return file{info.Name(), info.Size()}, nil
}
