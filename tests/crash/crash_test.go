// Package crash tests what survives crashes of the server or the machine, reboots and restarts.
package crash

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// TestCrashLosesNothingAcknowledged runs clients on an engine with a store in memory. Again and
// again it copies the file system as a crash could leave it, without a random part of the unsynced
// data. Each copy must open. For each mutex it must have the last state that a client learned, or a
// later one.
func TestCrashLosesNothingAcknowledged(t *testing.T) {
	for _, mode := range []persist.Mode{persist.Always, persist.Async} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			c := simbatest.NewCampaign(t, "crash clones, "+mode.String(), "embedded")
			want := simbatest.Count(3*crashClones, 10_000)
			var clones, tenures, lost int
			// Each seed has its own store, so that no store grows too large.
			for seed := uint64(1); clones < want && !c.Failed(); seed++ {
				n, l := crash(c, mode, seed)
				clones, tenures, lost = clones+crashClones, tenures+n, lost+l
			}
			c.Counted(clones, "%d tenures, %d unsynced states lost", tenures, lost)
		})
	}
}

// holder is the owner of a mutex with its token. The zero value is a free mutex.
type holder struct {
	owner string
	token uint64
}

// witness records what clients did and learned. The keys of its maps are mutexes.
type witness struct {
	mu     sync.Mutex
	states map[string][]holder // all states in order
	known  map[string]int      // index of the last state that a client learned
	forced map[string]int      // index of the last state that even async must not lose
	token  uint64              // largest token that a client received
	seq    simba.Seq
}

const crashLease = time.Hour

// step changes a mutex, and appends the resulting state. After the commit it records that a client
// has learned the state. If do returns forced, even async must not lose the change.
func (w *witness) step(e *engine.Engine, mutex string, do func() (forced bool, _ simba.Seq, _ error)) error {
	ctx := context.Background()
	w.mu.Lock()
	forced, seq, err := do()
	if err != nil {
		w.mu.Unlock()
		return err
	}
	now, replyAfter, err := e.Owner(ctx, mutex)
	seq = max(seq, replyAfter) // Owner itself can cause a handoff
	states := w.states[mutex]
	if h := (holder{now.Owner, now.Token}); len(states) == 0 || states[len(states)-1] != h {
		states = append(states, h)
		w.states[mutex] = states
	}
	at := len(states) - 1
	w.mu.Unlock()
	if err != nil {
		return err
	}
	if err := e.Commit(seq); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[mutex] = max(w.known[mutex], at)
	w.token, w.seq = max(w.token, now.Token), max(w.seq, seq)
	if forced {
		w.forced[mutex] = max(w.forced[mutex], at)
	}
	return nil
}

type nobody struct{}

func (nobody) Wake() {}

// client is a client with a few mutexes, some of them its own. It does one random action for each
// value from steps.
func (w *witness) client(e *engine.Engine, seed uint64, id int, steps <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(uint64(id), 6+seed))
	me := fmt.Sprint("c", id)
	ctx := context.Background()
	for range steps {
		mutex := fmt.Sprintf("own-%d-%d", id, rng.IntN(4))
		if rng.IntN(2) == 0 {
			mutex = fmt.Sprintf("shared-%d", rng.IntN(3))
		}
		err := w.step(e, mutex, func() (bool, simba.Seq, error) {
			switch rng.IntN(8) {
			case 0, 1, 2:
				o, _, err := e.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: me, TTL: crashLease})
				return false, o.Seq, err
			case 3:
				o, _, err := e.Acquire(ctx, simba.AcquireRequest{Mutex: mutex, Contender: me, TTL: crashLease, Waiter: nobody{}})
				return false, o.Seq, err
			case 4:
				o, err := e.Guard(ctx, simba.GuardRequest{Mutex: mutex, Contender: me, TTL: crashLease})
				return false, o.Seq, err
			case 5, 6:
				_, seq, err := e.Release(ctx, simba.ReleaseRequest{Mutex: mutex, Contender: me})
				return false, seq, err
			default:
				return e.Break(ctx, mutex, "")
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// picture is a copy of the file system, with the data of the witness at that moment.
type picture struct {
	fs            *vfs.MemFS
	states        map[string][]holder
	known, forced map[string]int
	token         uint64
	seq           simba.Seq
}

func (w *witness) crash(fs *vfs.MemFS, percent int, rng *rand.Rand) picture {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := picture{
		fs:     fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}),
		states: map[string][]holder{}, known: maps.Clone(w.known), forced: maps.Clone(w.forced),
		token: w.token, seq: w.seq,
	}
	for m, s := range w.states {
		p.states[m] = slices.Clip(s)
	}
	return p
}

// crashClones is the number of copies of one store.
const crashClones = 100

// crash tests crashClones copies of one store. It returns the number of tenures, and of the known
// states that were lost.
func crash(t testing.TB, mode persist.Mode, seed uint64) (tenures, lost int) {
	t.Helper()
	fs := vfs.NewCrashableMem()
	boot := persist.Boot{ID: "boot 1", Now: engine.NewClock(simba.Instant(time.Hour)).Now}
	store, rec, err := persist.Open(persist.Options{Dir: "data", FS: fs, Mode: mode, Boot: boot, SegmentSize: 8 << 10})
	simbatest.Must(t, err)
	e, err := engine.New(engine.Config{Clock: engine.ClockOf(boot.Now)}, store, engine.Recovery(*rec))
	simbatest.Must(t, err)
	w := &witness{states: map[string][]holder{}, known: map[string]int{}, forced: map[string]int{}}
	steps := make(chan struct{})
	var clients sync.WaitGroup
	for id := range 8 {
		clients.Go(func() {
			if err := w.client(e, seed, id, steps); err != nil {
				t.Error(err)
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, uint64(mode)))
	for i := range crashClones {
		for range rng.IntN(20) {
			steps <- struct{}{}
		}
		lost += survive(t, w.crash(fs, rng.IntN(101), rng), mode, i%4 == 3)
		if t.Failed() {
			t.Logf("the errors above are of clone %d of seed %d", i, seed)
			break
		}
	}
	close(steps)
	clients.Wait()
	e.Stop()
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	if len(w.states) < 10 || w.token < crashClones {
		t.Errorf("the clients used %d mutexes up to token %d, want more", len(w.states), w.token)
	}
	return int(w.token), lost
}

// survive opens the store that a crash left, and compares it with the picture. It returns the
// number of known states that are lost. In async a crash may lose some, but then the store must
// report a recovery delay.
func survive(t testing.TB, p picture, mode persist.Mode, reboot bool) (lost int) {
	t.Helper()
	boot := persist.Boot{ID: "boot 1", Now: engine.NewClock(simba.Instant(time.Hour + time.Minute)).Now}
	if reboot {
		boot = persist.Boot{ID: "boot 2", Now: engine.NewClock(simba.Instant(time.Second)).Now}
	}
	store, rec, err := persist.Open(persist.Options{Dir: "data", FS: p.fs, Boot: boot, SegmentSize: 8 << 10})
	if err != nil {
		t.Errorf("the store does not open after the crash: %v", err)
		return 0
	}
	defer store.Close()
	found := map[string]holder{}
	for l, err := range rec.Leases {
		if err != nil {
			t.Error(err)
			return 0
		}
		found[l.Mutex] = holder{l.Owner, l.Token}
		if l.TTL != crashLease || l.Token > rec.Token {
			t.Errorf("the store recovers %+v, with a wrong TTL or a token above the floor %d", l, rec.Token)
		}
		if left := l.End().Sub(boot.Now()); reboot && left < crashLease-time.Minute {
			t.Errorf("the reboot has shortened the lease of %s to %v", l.Mutex, left)
		}
	}
	for m, states := range p.states {
		at := lastIndex(states, found[m]) // -1: not in states, as before the first change
		known, wasKnown := p.known[m]
		forced, wasForced := p.forced[m]
		switch {
		case at < 0 && found[m] != holder{}:
			t.Errorf("%s: the store recovers %v, which was never its state", m, found[m])
		case wasForced && at < forced, mode == persist.Always && wasKnown && at < known:
			t.Errorf("%s: the engine acknowledged state %d of %d, but the store recovers state %d: %v", m, known, len(states), at, found[m])
		case wasKnown && at < known:
			lost++
		}
	}
	if rec.Token < p.token || rec.Seq < p.seq {
		t.Errorf("the engine acknowledged token %d and Seq %d, but the store recovers the floors %d and %d", p.token, p.seq, rec.Token, rec.Seq)
	}
	// In async, the recovery delay may be missing if the crash comes before the reply to the first
	// grant. Then no known state can be lost.
	delayed := rec.Delay >= crashLease
	if delayed != (mode == persist.Async) && (delayed || p.token > 0) {
		t.Errorf("after token %[2]d was acknowledged, the recovery delay is %[1]v", rec.Delay, p.token)
	}
	acquireAfterCrash(t, p, delayed, store, rec, found)
	return lost
}

// acquireAfterCrash starts an engine on the recovered store. A new contender then acquires mutexes.
func acquireAfterCrash(t testing.TB, p picture, delayed bool, store *persist.Store, rec *persist.Recovered, found map[string]holder) {
	t.Helper()
	e, err := engine.New(engine.Config{Clock: engine.NewClock(0)}, store, engine.Recovery(*rec))
	if err != nil {
		t.Error(err)
		return
	}
	defer e.Stop()
	ask := func(mutex string) simba.Outcome {
		o, _, err := e.Acquire(context.Background(), simba.AcquireRequest{Mutex: mutex, Contender: "stranger", TTL: time.Second, NoQueue: true})
		if err == nil {
			err = e.Commit(o.Seq)
		}
		if err != nil {
			t.Error(err)
		}
		return o
	}
	for m, h := range found {
		if o := ask(m); o.Status != simba.StatusBusy || o.Owner != h.owner || o.Token != h.token {
			t.Errorf("Acquire of %s by a new contender returns %+v, want busy with the recovered owner %v", m, o, h)
		}
	}
	switch o := ask("new"); {
	case delayed && o.Status != simba.StatusBusy:
		t.Errorf("during the recovery delay, Acquire of a free mutex returns %+v, want busy", o)
	case !delayed && (o.Status != simba.StatusAcquired || o.Token <= p.token):
		t.Errorf("after token %d was acknowledged, Acquire of a free mutex returns %+v, want acquired with a larger token", p.token, o)
	}
}

func lastIndex(states []holder, h holder) int {
	for i, s := range slices.Backward(states) {
		if s == h {
			return i
		}
	}
	return -1
}

func TestMain(m *testing.M) { os.Exit(simbatest.Main(m)) }
