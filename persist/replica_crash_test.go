package persist

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/simba-resp/simba-resp"
)

// logged is an entry with what it changes.
type logged struct {
	Entry
	change simba.Change // of an EntryRecord
}

// content is what the files of a member have. Its slices are never changed.
type content struct {
	log       []logged
	committed int // entries that are final
	member    string

	// What an operation that runs may have changed already:
	next       []logged // the log after Append or Install
	from       int      // entries of next that are in log too; -1 = Install
	nextMember string
}

// A memberMachine runs a Replica again and again on the same disk. Each run ends by a loss of power.
// truth has the final entries. It is another member, which may be ahead.
type memberMachine struct {
	t     *testing.T
	rng   *rand.Rand // belongs to the goroutine that works
	disk  *vfs.MemFS
	truth []logged
	ahead *Replica
	term  uint64
	token uint64
	seen  map[string]int // operations that a crash has met

	mu      sync.Mutex
	now     content
	after   int // operations of the file system until the crash
	crash   vfs.CrashCloneCfg
	crashed *vfs.MemFS
	atCrash content
}

func (m *memberMachine) beforeOp(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.after--; m.after == 0 {
		m.crashLocked()
	}
	return nil
}

func (m *memberMachine) crashLocked() {
	m.crashed = m.disk.CrashClone(m.crash)
	m.atCrash = m.now
	switch {
	case m.now.next != nil && m.now.from < 0:
		m.seen["install"]++
	case m.now.next != nil && m.now.from < len(m.now.log):
		m.seen["replace"]++
	case m.now.next != nil:
		m.seen["append"]++
	case m.now.nextMember != "":
		m.seen["member"]++
	}
}

func (m *memberMachine) note(do func(c *content)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do(&m.now)
}

func (m *memberMachine) hasCrashed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.crashed != nil
}

func (m *memberMachine) must(err error) {
	m.t.Helper()
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *memberMachine) run() {
	m.note(func(*content) {
		m.after, m.crashed = 1+m.rng.IntN(250), nil
		m.crash = vfs.CrashCloneCfg{UnsyncedDataPercent: 50 * m.rng.IntN(3), RNG: rand.New(rand.NewPCG(m.rng.Uint64(), 0))}
	})
	o := testOptions(m.t, errorfs.Wrap(m.disk, errorfs.InjectorFunc(m.beforeOp)), Always)
	o.HistoryLen = machineHistory
	o.SegmentSize = 8 << 10
	r, err := OpenReplica(o)
	m.must(err)
	m.check(r)
	if n := len(m.truth); n > m.now.committed { // the crash came before it had what others have
		m.append(r, m.now.committed, m.truth[m.now.committed:])
		m.commit(r, n)
	}
	for range 10 + m.rng.IntN(100) {
		if m.hasCrashed() {
			break
		}
		m.step(r)
	}
	m.must(r.Close())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.crashed == nil {
		m.crashLocked()
	}
	m.disk, m.now = m.crashed, m.atCrash
}

func (m *memberMachine) step(r *Replica) {
	now := m.now // only this goroutine changes it
	switch n := len(now.log); m.rng.IntN(20) {
	case 0:
		m.term++
		m.append(r, now.committed+m.rng.IntN(n-now.committed+1), m.entries(1+m.rng.IntN(5)))
	case 1:
		text := fmt.Sprint("member ", m.token, strings.Repeat(".", m.rng.IntN(100)))
		m.note(func(c *content) { c.nextMember = text })
		m.must(r.SetMember([]byte(text)))
		m.note(func(c *content) { c.member, c.nextMember = text, "" })
	case 2:
		m.install(r)
	case 3, 4, 5, 6, 7, 8:
		m.commit(r, now.committed+m.rng.IntN(n-now.committed+1))
	default:
		m.append(r, n, m.entries(1+m.rng.IntN(5)))
	}
}

// entries returns new entries, without their indexes.
func (m *memberMachine) entries(n int) (list []logged) {
	for range n {
		m.token++
		e := logged{Entry: Entry{Term: m.term}}
		switch m.rng.IntN(8) {
		case 0:
			e.Kind = EntryEmpty
		case 1:
			e.Kind, e.Data = EntryMembers, []byte(fmt.Sprint("members ", m.token))
		default:
			e.change = put(1, fmt.Sprint("m", m.rng.IntN(8)))
			if m.rng.IntN(4) == 0 {
				e.change = del(1, e.change.Lease.Mutex)
			} else if m.rng.IntN(30) == 0 { // larger than a segment
				e.change.Lease.Fields = []simba.Field{{Name: "large", Value: strings.Repeat("x", 20_000)}}
			}
		}
		list = append(list, e)
	}
	return list
}

// append replaces the entries after the first ones by others.
func (m *memberMachine) append(r *Replica, first int, list []logged) {
	next := slices.Clone(m.now.log[:first])
	var entries []Entry
	for _, e := range list {
		e.Index = uint64(len(next) + 1)
		if e.Kind == EntryRecord && e.Data == nil {
			seq := abs(simba.Seq(e.Index))
			e.change.Seq, e.change.Events[0].Seq, e.change.Events[0].Token = seq, seq, m.token
			if e.change.Kind == simba.ChangePut {
				e.change.Lease.Token = m.token
			}
			e.Data = recordOf(head{seq: seq + 7, token: m.token, instant: 5000}, e.change)
		}
		next = append(next, e)
		entries = append(entries, Entry{e.Index, e.Term, e.Kind, bytes.Clone(e.Data)})
	}
	m.note(func(c *content) { c.next, c.from = next, first })
	m.must(r.Append(entries))
	m.note(func(c *content) { c.log, c.next = next, nil })
}

// commit makes entries final, on the other member too.
func (m *memberMachine) commit(r *Replica, n int) {
	m.note(func(c *content) { c.committed = n })
	r.Commit(uint64(n))
	if len(m.truth) < n {
		m.lengthen(m.now.log[len(m.truth):n])
	}
}

func (m *memberMachine) lengthen(list []logged) {
	m.truth = append(slices.Clip(m.truth), list...)
	for _, e := range list {
		m.must(m.ahead.Append([]Entry{{e.Index, e.Term, e.Kind, bytes.Clone(e.Data)}}))
	}
	m.ahead.Commit(uint64(len(m.truth)))
}

// install gives the member a snapshot of the other one, which has further entries.
func (m *memberMachine) install(r *Replica) {
	m.term++
	more := m.entries(1 + m.rng.IntN(20))
	for i := range more {
		more[i].Index = uint64(len(m.truth) + i + 1)
		if more[i].Kind == EntryRecord {
			more[i].Kind = EntryEmpty
		}
	}
	m.lengthen(more)
	b, index, term, err := m.ahead.Snapshot()
	m.must(err)
	m.must(r.ReceiveSnapshot(index, term, bytes.NewReader(readAll(m.t, b))))
	next := slices.Clone(m.truth)
	m.note(func(c *content) { c.next, c.from = next, -1 })
	m.must(r.Install(index, term))
	m.note(func(c *content) { c.log, c.committed, c.next = next, len(next), nil })
}

// check compares a Replica that was opened after a crash with what it had then.
func (m *memberMachine) check(r *Replica) {
	c, t := m.now, m.t
	text, err := r.Member()
	m.must(err)
	if string(text) != c.member && (c.nextMember == "" || string(text) != c.nextMember) {
		t.Fatalf("MEMBER is %q, want %q or %q", text, c.member, c.nextMember)
	}
	at := int(r.Checkpoint())
	if c.next != nil && c.from < 0 && at == len(c.next) { // Install has happened
		c.log, c.committed, c.next = c.next, at, nil
	}
	if at > c.committed {
		t.Fatalf("the checkpoint has %d entries, of which %d were final", at, c.committed)
	}
	if at > 0 && r.Term() != c.log[at-1].Term {
		t.Fatalf("the checkpoint ends with an entry of term %d, want %d", r.Term(), c.log[at-1].Term)
	}
	var found []Entry
	for e, err := range r.Entries() {
		m.must(err)
		found = append(found, e)
	}
	n := at + len(found)
	switch {
	case n == len(c.log) && sameEntries(found, c.log[at:]):
	case c.next != nil && c.from >= 0 && n >= c.from && n <= len(c.next) && sameEntries(found, c.next[at:n]):
		c.log = c.next[:n:n]
	default:
		t.Fatalf("the member has %d entries after %d, want those of %d, or of %d from %d on", len(found), at, len(c.log), len(c.next), c.from)
	}
	c.member, c.nextMember, c.next = string(text), "", nil
	m.note(func(now *content) { *now = c })
	r.Commit(uint64(c.committed))
	s, rec, err := r.Lead(LeadOptions{
		Now:     r.options.Boot.Now,
		Propose: func([]byte) error { return nil },
		Confirm: func() error { return nil },
		Format:  func() uint32 { return RecordFormat },
	})
	m.must(err)
	want, floor := model{leases: map[string]simba.Lease{}}, floors{zero, uint64(zero), 0}
	for _, e := range c.log[:c.committed] {
		if e.Kind == EntryRecord {
			want.apply(e.change)
			floor.seq, floor.token = e.change.Seq+7, e.change.Events[0].Token
		}
	}
	leases := leasesOf(t, rec)
	for mutex, l := range leases { // their instants are this member's
		l.Acquired, l.AcquiredAt, l.StartedAt = want.leases[mutex].Acquired, want.leases[mutex].AcquiredAt, want.leases[mutex].StartedAt
		leases[mutex] = l
	}
	if !want.equal(leases, rec.History, machineHistory) || rec.Seq != floor.seq || rec.Token != floor.token {
		t.Fatalf("after %d entries the state is %v and %v with the floors %d and %d, want %v and %v with %d and %d",
			c.committed, leases, rec.History, rec.Seq, rec.Token, want.leases, want.history, floor.seq, floor.token)
	}
	m.must(s.Close())
}

// recordOf returns a record of one change. The leader's boot is its third.
func recordOf(h head, ch simba.Change) []byte {
	g := newGroup()
	g.add(&ch, nil)
	h.format, h.first, h.last, h.generation, h.base = RecordFormat, g.first, g.last, 3, g.base
	h.put(g.record)
	return g.record
}

// sameEntries compares entries of a member with those that were appended. The instants of a record are
// the member's own, but the leases are as old.
func sameEntries(got []Entry, want []logged) bool {
	return slices.EqualFunc(got, want, func(e Entry, w logged) bool {
		a, b := e.Data, w.Data
		if e.Kind == EntryRecord && w.Kind == EntryRecord {
			var x, y head
			x, a, _ = decodeHead(a)
			y, b, _ = decodeHead(b)
			y.localize(x.instant, x.generation)
			y.term = e.Term
			if x != y {
				return false
			}
		}
		return e.Index == w.Index && e.Term == w.Term && e.Kind == w.Kind && bytes.Equal(a, b)
	})
}

func TestACrashAtAnyMomentLosesNoEntryOfAMember(t *testing.T) {
	seen := map[string]int{}
	for seed := range searches(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ahead := openReplica(t, vfs.NewMem())
			defer func() {
				if err := ahead.Close(); err != nil {
					t.Error(err)
				}
			}()
			m := &memberMachine{
				t: t, rng: rand.New(rand.NewPCG(seed, 0)), disk: vfs.NewCrashableMem(),
				ahead: ahead, term: 1, token: uint64(zero), seen: seen,
			}
			for range 25 {
				m.run()
			}
		})
	}
	for _, op := range []string{"append", "replace", "install", "member"} {
		if seen[op] == 0 && !underRace {
			t.Errorf("no crash during the operation %s: %v", op, seen)
		}
	}
}
