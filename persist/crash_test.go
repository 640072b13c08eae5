package persist

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
)

// A model has the leases and events that a store should have after some changes.
type model struct {
	leases  map[string]simba.Lease
	history []simba.Event
}

func (m *model) apply(ch simba.Change) {
	switch ch.Kind {
	case simba.ChangePut:
		m.leases[ch.Lease.Mutex] = ch.Lease
	case simba.ChangeDelete:
		delete(m.leases, ch.Lease.Mutex)
	}
	m.history = append(m.history, ch.Events...)
}

func (m *model) equal(leases map[string]simba.Lease, history []simba.Event, limit int) bool {
	return reflect.DeepEqual(m.leases, leases) && slices.Equal(m.history[max(0, len(m.history)-limit):], history)
}

// A machine runs several stores on the same disk, one after another. Each run ends by a loss of
// power. The next run checks the contents of the disk.
type machine struct {
	t    *testing.T
	rng  *rand.Rand
	mode Mode
	disk *vfs.MemFS

	base  model // the disk's state before the run
	delay time.Duration
	token uint64 // largest token that was ever committed

	mu        sync.Mutex
	store     *Store // nil until Open has returned
	appended  []simba.Change
	torn      map[int]bool // each n such that the first n changes end inside a transaction
	after     int          // operations of the file system until the crash
	released  int          // segments so far
	crashed   *vfs.MemFS
	committed simba.Seq // result of Committed at the crash
}

const machineHistory = 20

// crashLocked copies the disk as the next run finds it. First it notes the committed changes, which
// the copy must have. The copy may have later changes too.
func (m *machine) crashLocked() {
	if m.store != nil {
		m.committed = m.store.Committed()
	}
	m.crashed = m.disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: m.rng.IntN(101), RNG: m.rng})
}

func (m *machine) beforeOp(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if op.Kind == errorfs.OpRename && isSegment(op) {
		m.released++
	}
	if m.after--; m.after == 0 {
		m.crashLocked()
	}
	return nil
}

func (m *machine) run() {
	m.mu.Lock()
	m.after = 1 + m.rng.IntN(300)
	m.crashed, m.committed, m.store = nil, 0, nil
	m.mu.Unlock()

	o := testOptions(m.t, errorfs.Wrap(m.disk, errorfs.InjectorFunc(m.beforeOp)), m.mode)
	o.HistoryLen = machineHistory
	o.SegmentSize = 8 << 10
	s, r := mustOpen(m.t, o)
	m.check(r)

	m.mu.Lock()
	m.store, m.appended, m.torn = s, nil, map[int]bool{}
	m.mu.Unlock()
	m.work(s, r.Seq, r.Token)

	m.mu.Lock()
	if m.crashed == nil && m.rng.IntN(2) == 0 {
		m.crashLocked()
	}
	m.mu.Unlock()
	mustClose(m.t, s)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed == nil {
		m.crashLocked()
	}
	m.disk = m.crashed
	if i := m.upTo(m.committed); i > 0 {
		for _, ch := range m.appended[:i] {
			m.token = max(m.token, ch.Lease.Token)
		}
	}
}

// work appends changes on one goroutine, and commits them on several.
func (m *machine) work(s *Store, seq simba.Seq, token uint64) {
	var committers sync.WaitGroup
	defer committers.Wait()
	for range 10 + m.draw(100) {
		if m.hasCrashed() {
			break
		}
		together := make([]simba.Change, 1+max(0, m.draw(6)-3))
		for i := range together {
			seq++
			together[i], token = m.change(seq, token)
		}
		m.mu.Lock()
		for i := 1; i < len(together); i++ {
			m.torn[len(m.appended)+i] = true
		}
		m.appended = append(m.appended, together...)
		m.mu.Unlock()
		if len(together) == 1 {
			s.Append(together[0])
		} else {
			s.AppendAll(together)
		}
		switch last := seq; m.draw(5) {
		case 0:
			mustCommit(m.t, s, seq)
		case 1:
			committers.Go(func() {
				if err := s.Commit(last); err != nil {
					m.t.Error(err)
				}
			})
		case 2:
			s.flushNext()
		}
	}
}

func (m *machine) hasCrashed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashed != nil
}

func (m *machine) change(seq simba.Seq, token uint64) (simba.Change, uint64) {
	ch := put(seq, fmt.Sprint("m", m.draw(8)))
	switch m.draw(6) {
	case 0:
		ch = note(seq)
	case 1, 2:
		ch = del(seq, ch.Lease.Mutex)
		ch.Forced = m.draw(3) == 0
	default:
		token += uint64(m.draw(2))
		ch.Lease.Token = max(token, 1)
		ch.Lease.TTL = time.Duration(1+m.draw(100)) * time.Second
	}
	return ch, token
}

func (m *machine) draw(n int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.IntN(n)
}

// upTo returns how many of the changes have a Seq of at most seq.
func (m *machine) upTo(seq simba.Seq) int {
	i, _ := slices.BinarySearchFunc(m.appended, seq+1, func(ch simba.Change, seq simba.Seq) int {
		return int(ch.Seq) - int(seq)
	})
	return i
}

// check determines how many changes the disk has. The disk must have the first changes, in order.
// Among these must be all committed changes to leases, or in Async all committed forced changes. No
// change and no transaction may be torn.
func (m *machine) check(r *Recovered) {
	upTo := m.upTo(m.committed)
	must := 0 // number of changes that the disk must have
	for i, ch := range m.appended[:upTo] {
		if m.mode == Always && ch.Kind != simba.ChangeNone || ch.Forced {
			must = i + 1
		}
	}
	leases := leasesOf(m.t, r)
	kept := -1
	for i := 0; i <= len(m.appended); i++ {
		if i > 0 {
			m.base.apply(m.appended[i-1])
		}
		if i >= must && !m.torn[i] && m.base.equal(leases, r.History, machineHistory) {
			kept = i
			break
		}
	}
	if kept < 0 {
		m.t.Fatalf("of %d changes the disk must keep the first %d, or more; found leases %v and history %v", len(m.appended), must, leases, r.History)
	}
	if r.Seq < m.committed {
		m.t.Errorf("recovered Seq = %d, but %d was committed", r.Seq, m.committed)
	}
	if r.Token < m.token {
		m.t.Errorf("recovered Token = %d, but %d was committed", r.Token, m.token)
	}
	for _, ch := range m.appended[min(kept, upTo):upTo] {
		if w := ch.Lease.TTL + ch.Lease.Transition; r.Delay < w {
			m.t.Errorf("Delay = %v, but a lease of %v was committed and lost", r.Delay, w)
		}
	}
	if r.Delay < m.delay {
		m.t.Errorf("Delay = %v, want at least the earlier recovery delay of %v", r.Delay, m.delay)
	}
	// The clock stands still, so the next run must have at least this delay.
	m.delay = r.Delay
}

// searches returns how many random searches of n a test makes.
func searches(n uint64) uint64 {
	if underRace {
		return max(1, n/5)
	}
	return n
}

// skipUnderRace skips a test that copies much memory on one goroutine.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if underRace {
		t.Skip("make test runs it without the race detector")
	}
}

func TestACrashAtAnyMomentLosesNoCommittedChange(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		for seed := range searches(10) {
			t.Run(fmt.Sprintf("%v/%d", mode, seed), func(t *testing.T) {
				m := &machine{
					t: t, mode: mode, disk: vfs.NewCrashableMem(),
					rng:  rand.New(rand.NewPCG(seed, uint64(mode))),
					base: model{leases: map[string]simba.Lease{}},
				}
				for range 25 {
					m.run()
				}
				if m.released == 0 {
					t.Error("no segment was released")
				}
			})
		}
	}
}
