package persist

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

// journalRecords returns all records of an open store that has released none.
func journalRecords(t *testing.T, s *Store) (list [][]byte) {
	t.Helper()
	for r, err := range s.journal.Records(0, s.journal.Durable()) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, bytes.Clone(r.Payload))
	}
	return list
}

// changesOf makes random changes from a seed: grants, renewals, releases and notes.
type changesOf struct {
	rng    *rand.Rand
	clock  *clock
	wall   time.Time
	seq    simba.Seq
	leases map[string]simba.Lease // the leases after all changes
}

func (c *changesOf) next() simba.Change {
	c.seq++
	mutex := fmt.Sprint("m", c.rng.IntN(12))
	c.clock.advance(time.Duration(c.rng.IntN(500)) * time.Millisecond)
	wall := c.wall.UnixMilli() + int64(c.rng.IntN(3)-1)*3_600_000 // the wall clock jumps often
	l, held := c.leases[mutex]
	ch := put(c.seq, mutex)
	switch {
	case held && c.rng.IntN(4) == 0:
		delete(c.leases, mutex)
		return del(c.seq, mutex)
	case held:
		ch.Events = nil
		l.Acquired, l.AcquiredAt = c.clock.now(), wall
		ch.Lease = l
	default:
		ch.Lease.Acquired, ch.Lease.AcquiredAt, ch.Lease.StartedAt = c.clock.now(), wall, wall
		ch.Lease.Session = c.rng.IntN(2) == 0
		if c.rng.IntN(4) == 0 {
			ch.Lease.Fields = []simba.Field{{Name: "f", Value: fmt.Sprint(c.seq)}}
		}
	}
	ch.Lease.TTL = time.Duration(1+c.rng.IntN(30)) * time.Second
	c.leases[mutex] = ch.Lease
	return ch
}

func newChanges(seed uint64) *changesOf {
	c := &changesOf{
		rng: rand.New(rand.NewPCG(seed, 1)), clock: new(clock),
		wall: time.UnixMilli(1_700_000_000_000), leases: map[string]simba.Lease{},
	}
	c.clock.advance(time.Hour)
	return c
}

// Another machine, with another boot clock, replays each record up to 300 ms after it was made.
// On that machine a lease may end up to 300 ms later than for its owner, but never earlier.
func TestRecordsAreReplayedOnAnotherMachine(t *testing.T) {
	for seed := range searches(20) {
		changes := newChanges(seed)
		o := testOptions(t, vfs.NewMem(), Mode(seed%2))
		o.SegmentSize = 1 << 20
		o.Boot.Now = changes.clock.now
		s, _ := openClosed(t, o)
		ahead := simba.Instant(changes.rng.Int64N(int64(2000*time.Hour))) - simba.Instant(1000*time.Hour)
		const latest = 300 * time.Millisecond
		replica := map[string]simba.Lease{}
		replayed := 0
		for range 60 {
			for range 1 + changes.rng.IntN(4) { // these share a record
				s.Append(changes.next())
			}
			if err := s.writeAll(false); err != nil {
				t.Fatal(err)
			}
			list := journalRecords(t, s)
			for _, record := range list[replayed:] {
				now := changes.clock.now() + ahead + simba.Instant(changes.rng.Int64N(int64(latest)))
				replayOn(t, replica, record, now)
			}
			replayed = len(list)
			if len(replica) != len(changes.leases) {
				t.Fatalf("seed %d: the other machine has %d leases, want %d", seed, len(replica), len(changes.leases))
			}
			for mutex, want := range changes.leases {
				got := replica[mutex]
				if late := got.End() - ahead - want.End(); late < 0 || late > simba.Instant(latest) {
					t.Fatalf("seed %d: the lease of %s ends %v after its owner's, want 0 to %v", seed, mutex, time.Duration(late), latest)
				}
				got.Acquired = want.Acquired
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d: the other machine has lease %+v, want %+v but for Acquired", seed, got, want)
				}
			}
		}
	}
}

func replayOn(t *testing.T, leases map[string]simba.Lease, record []byte, now simba.Instant) {
	t.Helper()
	h, changes, err := decodeHead(record)
	if err != nil {
		t.Fatal(err)
	}
	h.localize(now, 1)
	err = eachChange(changes, func(kind changeKind, body []byte) error {
		switch kind {
		case changePut:
			l, err := decodePut(&h, body)
			leases[l.Mutex] = l
			return err
		case changeDelete:
			delete(leases, string(body))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The records come from several runs in two boots. The test replays the first records again after
// all others. That must change nothing, since each record names its boot.
func TestRecordsOfSeveralBootsThatAreReplayedAgainChangeNothing(t *testing.T) {
	changes := newChanges(1)
	fsys := vfs.NewMem()
	var list [][]byte
	for run := range 3 {
		o := testOptions(t, fsys, Always)
		o.SegmentSize = 1 << 20
		o.Boot = Boot{ID: fmt.Sprint("boot ", run/2), Now: changes.clock.now}
		s, r := mustOpen(t, o)
		changes.seq = r.Seq
		before := len(list)
		for range 20 {
			ch := changes.next()
			s.Append(ch)
			mustCommit(t, s, ch.Seq)
		}
		for r, err := range s.journal.Records(uint64(before), s.journal.Durable()) {
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, bytes.Clone(r.Payload))
		}
		mustClose(t, s)
		list = append(list, nil) // nil is the final record of Close, which has no change
	}
	db, err := pebble.Open("data", &pebble.Options{FS: vfs.NewMem(), Logger: pebbleLogger{Logger: testOptions(t, nil, Always).Logger}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c := newCheckpoint(db, meta{}, 1000)
	replay := func(from int) map[string]string {
		for i, record := range list[from:] {
			if record == nil {
				continue
			}
			if err := c.add(uint64(from+i+1), record); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.write(); err != nil {
			t.Fatal(err)
		}
		return rowsOf(t, db)
	}
	want := replay(0)
	generations := map[uint64]bool{}
	for key, value := range want {
		if key[0] == leasePrefix {
			_, generation, err := decodeLeaseRow([]byte(key), []byte(value))
			if err != nil {
				t.Fatal(err)
			}
			generations[generation] = true
		}
	}
	if len(generations) != 2 {
		t.Errorf("the rows have leases of the generations %v, want two", generations)
	}
	for from := range list {
		if got := replay(from); !maps.Equal(got, want) {
			t.Fatalf("after a second replay from record %d, the rows are %q, want %q", from+1, got, want)
		}
	}
}

// In the same boot, recovered leases equal the appended leases to the nanosecond.
func TestReplayGivesTheLeasesThatWereAppended(t *testing.T) {
	for seed := range searches(10) {
		changes := newChanges(seed)
		fsys := vfs.NewMem()
		o := testOptions(t, fsys, Mode(seed%2))
		o.SegmentSize = 8 << 10 // so that some leases are rows of the checkpoint
		o.Boot.Now = changes.clock.now
		s, _ := mustOpen(t, o)
		var events []simba.Event
		for range 20 {
			for range changes.rng.IntN(30) {
				ch := changes.next()
				s.Append(ch)
				events = append(events, ch.Events...)
			}
			mustClose(t, s)
			var r *Recovered
			s, r = mustOpen(t, o)
			if got := leasesOf(t, r); !reflect.DeepEqual(got, changes.leases) {
				t.Fatalf("seed %d: Open returns leases %+v, want %+v", seed, got, changes.leases)
			}
			if !reflect.DeepEqual(r.History, events) && len(events) > 0 {
				t.Fatalf("seed %d: Open returns %d events, want %d", seed, len(r.History), len(events))
			}
			if r.Seq < abs(changes.seq) || r.Delay != 0 {
				t.Fatalf("seed %d: Open returns Seq %d, delay %v, want %d and 0", seed, r.Seq, r.Delay, changes.seq)
			}
		}
		mustClose(t, s)
	}
}
