package journal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/cryptotest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var errCrashed = errors.New("the machine has crashed")

// promised bounds the records that a journal must have after a crash.
type promised struct {
	durable uint64 // records up to this index were durable
	from    uint64 // the checkpoint had the records up to this index
	segment uint64 // see Options.Segment
}

// A machine runs one journal after another on the same disk. Each run ends at a random operation of
// the file system, by a loss of power or kill -9. The next run must find all promised records.
type machine struct {
	t    *testing.T
	rng  *rand.Rand
	disk *vfs.MemFS
	runs int

	// mu protects the fields below.
	mu       sync.Mutex
	records  [][]byte // payloads of all appended records; records[i-1] has index i
	promised promised
	after    int            // operations until the crash
	crashed  bool           // all further operations fail
	lost     *vfs.MemFS     // the disk after a loss of power; nil = the crash was kill -9
	atCrash  promised       // value of promised at the crash
	seen     map[string]int // number of crashes, by kind of operation
	reused   int            // number of spare files that became segments
	dropped  int            // number of records that Truncate has dropped
	resets   int            // number of calls of Reset that have returned
}

func newMachine(t *testing.T, seed uint64) *machine {
	cryptotest.SetGlobalRandom(t, seed) // for the salts
	return &machine{
		t: t, disk: vfs.NewCrashableMem(), rng: rand.New(rand.NewPCG(seed, 0)),
		seen: map[string]int{},
	}
}

func (m *machine) draw(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

func (m *machine) hook(o op) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed {
		return 0, errCrashed
	}
	if m.after--; m.after > 0 {
		if o.kind == "rename" {
			m.reused++
		}
		return o.size, nil
	}
	m.crashed = true
	m.seen[o.kind]++
	m.atCrash = m.promised
	if m.rng.IntN(2) == 0 {
		m.lost = m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.rng.IntN(101), RNG: m.rng})
	}
	return m.rng.IntN(o.size + 1), errCrashed // kill -9 may cut a write short
}

// boot prepares the next run, which crashes after this number of operations. It returns the options
// of its journal.
func (m *machine) boot(after int) Options {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lost != nil {
		m.disk = m.lost
	}
	m.lost, m.crashed, m.after = nil, false, after
	m.runs++
	o := testOptions(newTrapFS(m.disk, m.hook))
	o.From, o.Segment = m.promised.from, m.promised.segment
	return o
}

// run first opens the journal up to three times, and each of these runs may crash. Then it opens
// the journal without a crash, checks it, and writes to it until the crash.
func (m *machine) run() {
	for range m.draw(4) {
		if j, err := Open(m.boot(1 + m.draw(25))); err == nil {
			m.check(j) // Open returned before the crash
			abandon(j)
		} else if !errors.Is(err, errCrashed) {
			m.t.Fatalf("run %d: Open failed without a crash: %v", m.runs, err)
		}
	}
	o := m.boot(1 << 30)
	j, err := Open(o)
	if err != nil {
		m.t.Fatalf("run %d: Open after the crash: %v", m.runs, err)
	}
	m.check(j)
	m.mu.Lock()
	m.after = 1 + m.rng.IntN(150)
	m.mu.Unlock()
	if m.work(j) {
		m.mu.Lock()
		if m.after > 1<<20 {
			m.t.Error("the run ended without a crash")
		}
		m.mu.Unlock()
	}
	if err := j.Close(); err == nil {
		m.note(func() { m.promised.durable = uint64(len(m.records)) })
	} else if !errors.Is(err, errCrashed) {
		m.t.Errorf("Close: %v", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.crashed { // Close returned before the crash
		m.crashed, m.atCrash = true, m.promised
	}
	m.promised = m.atCrash
}

// note calls promise while it holds mu.
func (m *machine) note(promise func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	promise()
}

// check compares the journal's records with the appended ones. The journal must have all durable
// records in order, and may have more. From now on all these records are promised.
func (m *machine) check(j *Journal) {
	from, last := j.o.From, j.FullIndex()
	if last < m.promised.durable || last > uint64(len(m.records)) {
		m.t.Fatalf("run %d: the journal has %d records; of %d appended ones, %d were durable", m.runs, last, len(m.records), m.promised.durable)
	}
	if err := m.compare(j, from, last); err != nil {
		m.t.Fatalf("run %d: Records: %v", m.runs, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = m.records[:last]
	m.promised.durable = last
	if m.crashed { // the crash came in the background, after Open
		m.atCrash.durable = last
	}
}

// compare compares the records after from, up to last, with the appended ones. The error is that of
// Records.
func (m *machine) compare(j *Journal, from, last uint64) error {
	next := from
	for r, err := range j.Records(from, last) {
		if err != nil {
			return err
		}
		if next++; r.Index != next {
			m.t.Fatalf("run %d: the next record is %d, want %d", m.runs, r.Index, next)
		}
		if !bytes.Equal(r.Payload, m.records[next-1]) {
			m.t.Fatalf("run %d: record %d is %.30q, want %.30q", m.runs, next, r.Payload, m.records[next-1])
		}
	}
	if next != last {
		m.t.Fatalf("run %d: the records end with %d, want %d", m.runs, next, last)
	}
	return nil
}

// work appends, syncs and releases at random. It returns true if the crash ended it.
func (m *machine) work(j *Journal) bool {
	for m.draw(80) > 0 {
		if err := m.step(j); err != nil {
			if !errors.Is(err, errCrashed) {
				m.t.Errorf("run %d: the step failed: %v", m.runs, err)
			}
			return true
		}
	}
	return false
}

func (m *machine) step(j *Journal) error {
	switch n := m.draw(22); {
	case n < 12:
		p := m.payload()
		m.note(func() { m.records = append(m.records, p) })
		_, err := j.Append(p)
		return err
	case n < 18:
		return m.sync(j, j.appended)
	case n < 19:
		index := min(j.FullIndex(), m.promised.from+uint64(m.draw(30)))
		if index < m.promised.from {
			return nil
		}
		m.note(func() { m.promised.from = index })
		return j.Release(index)
	case n < 20:
		return m.truncate(j)
	case n < 21:
		return m.reset(j)
	default:
		if last := j.Durable(); last > m.promised.from {
			return m.compare(j, m.promised.from, last)
		}
	}
	return nil
}

// truncate drops up to 30 records. Until Truncate returns, a crash may leave them.
func (m *machine) truncate(j *Journal) error {
	last := max(m.promised.from, j.appended-min(j.appended, uint64(m.draw(31))))
	if last == j.appended { // drops nothing, and syncs nothing
		return nil
	}
	m.note(func() { m.promised.durable = min(m.promised.durable, last) })
	err := j.Truncate(last)
	if err == nil {
		m.note(func() {
			if !m.crashed { // else the background has crashed, and the disk may be older
				m.dropped += len(m.records) - int(last)
				m.records = m.records[:last]
				m.promised.durable = last
			}
		})
	}
	return err
}

// reset makes the checkpoint one of other records, and drops those of the journal. From then on the
// journal has all records of the checkpoint, and none of its own, even if a crash is faster than Reset.
func (m *machine) reset(j *Journal) error {
	last := m.promised.from + uint64(m.draw(60))
	err := errCrashed
	m.note(func() {
		if !m.crashed { // else the background has crashed, and the checkpoint stays
			err = nil
			kept := m.records[:min(int(last), len(m.records))]
			m.records = append(kept, make([][]byte, int(last)-len(kept))...)
			m.promised = promised{durable: last, from: last, segment: j.NextSegment()}
		}
	})
	if err == nil {
		if err = j.Reset(last); err == nil {
			m.resets++
		}
	}
	return err
}

func (m *machine) sync(j *Journal, last uint64) error {
	err := j.Sync()
	if err == nil {
		m.note(func() {
			if !m.crashed {
				m.promised.durable = max(m.promised.durable, last)
			}
		})
	}
	return err
}

// payload returns a random payload that differs from all others. Some payloads contain forged
// frames, and some are larger than a segment.
func (m *machine) payload() []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	index := uint64(len(m.records)) + 1
	p := fmt.Appendf(nil, "record %d of run %d ", index, m.runs)
	switch m.rng.IntN(20) {
	case 0:
		p = append(p, make([]byte, m.rng.IntN(20_000))...)
	case 1, 2:
		p = p[:len(p)/align*align]
		for i := range uint64(10) {
			p = appendFrame(p, m.rng.Uint64N(2), frame{index: index + i, durable: index + i - 1, kind: record}, []byte("forged"))
		}
	default:
		p = append(p, bytes.Repeat([]byte{byte(index)}, m.rng.IntN(600))...)
	}
	return p
}

// The machine also crashes while Open recovers, up to three times in a row. After kill -9 the
// kernel still has the writes in memory, and a later loss of power can lose them.
func TestACrashAtAnyMomentLosesNothingDurable(t *testing.T) {
	seen, reused, dropped, resets := map[string]int{}, 0, 0, 0
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newMachine(t, seed)
			for range 20 {
				m.run()
			}
			for kind, n := range m.seen {
				seen[kind] += n
			}
			reused += m.reused
			dropped += m.dropped
			resets += m.resets
		})
	}
	for _, kind := range []string{"open", "remove", "rename", "write", "sync"} {
		if seen[kind] == 0 {
			t.Errorf("no run crashed at the operation %s; crashes by operation: %v", kind, seen)
		}
	}
	if reused == 0 || dropped == 0 || resets == 0 {
		t.Errorf("the runs reused %d files, dropped %d records and called Reset %d times", reused, dropped, resets)
	}
}
