package simulation

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/simba-resp/simba-resp/cluster"
)

var debugLevel = flag.String("log", "", "with -seed: the level from which the members' own log lines are shown, debug or info; empty = none")

var debugLog *slog.Level

// clusterSeeds is how many seeds TestClusterSimulation runs by default.
const clusterSeeds = 20

// clusterPatience limits the real time of a run, which needs about 0.4 s.
const clusterPatience = 2 * time.Minute

// settled is within which a whole cluster must grant, after its faults have ended: connections break
// and open again, and members catch up.
const settled = 40 * time.Second

// TestClusterSimulation runs clusters, one for each seed, one after the other: raft's timeouts come from
// crypto/rand, which has one source for all.
func TestClusterSimulation(t *testing.T) {
	base, n := chosenSeeds(clusterSeeds)
	if *oneSeed != 0 {
		base, n = *oneSeed-1, 1
		if *debugLevel != "" {
			debugLog = new(slog.Level)
			if err := debugLog.UnmarshalText([]byte(*debugLevel)); err != nil {
				t.Fatal(err)
			}
			defer func() { debugLog = nil }()
		}
	}
	total := map[string]int{}
	began := time.Now()
	for i := range n {
		r := simulateCluster(t, base+uint64(i)+1)
		if *oneSeed != 0 {
			t.Logf("seed %d (%s)\n%s", r.seed, r.config, strings.Join(r.log, "\n"))
		}
		if testing.Verbose() {
			t.Logf("seed %d: trace %s", r.seed, trace(r.log))
		}
		for kind, count := range r.counts {
			total[kind] += count
		}
		if judgeCluster(t, r); t.Failed() {
			return
		}
	}
	t.Logf("seeds from %d on: %d in %v", base+1, n, time.Since(began).Round(time.Second))
	for _, kind := range slices.Sorted(maps.Keys(total)) {
		t.Logf("%7d %s", total[kind], kind)
	}
}

func judgeCluster(t *testing.T, r *report) {
	t.Helper()
	if len(r.violations) > 0 {
		t.Errorf("%vthe last lines of the log:\n%s\nto see the whole log: go test -v -run TestClusterSimulation ./tests/simulation -seed %d", r, r.tail(40), r.seed)
	}
}

// simulateCluster runs one seed and returns the report. It may not run beside another one.
func simulateCluster(t *testing.T, seed uint64) *report {
	t.Helper()
	cryptotest.SetGlobalRandom(t, seed)
	// With one processor, which goroutine of an instant is the fastest does not depend on the machine.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	return within(clusterPatience, seed, ruleProgress, func() *report { return clusterBubble(t, seed) })
}

func clusterBubble(t *testing.T, seed uint64) (r *report) {
	r = &report{seed: seed, counts: map[string]int{}}
	defer func() {
		if p := recover(); p != nil {
			r.violations = append(r.violations, violation{ruleProgress, fmt.Sprintf("%v\n%s", p, debug.Stack())})
		}
	}()
	synctest.Test(t, func(*testing.T) {
		time.Sleep(time.Until(time.Date(2027, time.January, 1, 0, 0, 0, 0, time.UTC)))
		rng := rand.New(rand.NewPCG(seed, stream))
		w := &clusterWorld{clusterConfig: drawCluster(rng), seed: seed, rng: rng, report: r, start: time.Now(), lost: -1, voted: make(chan int, 1000)}
		r.config = w.clusterConfig.String()
		w.net = newNetwork(seed, w.size)
		w.votes = map[[2]uint64]uint64{}
		w.net.message = w.watch
		w.mutexesByName, w.owners = map[string]*clusterMutex{}, map[uint64]string{}
		for i := range w.mutexes {
			w.mutexesByName[mutexName(i)] = &clusterMutex{name: mutexName(i)}
		}
		w.run()
		r.log = inOrder(w.lines)
	})
	return r
}

// run starts the members and the clients, injects faults, and then judges the whole cluster.
func (w *clusterWorld) run() {
	for i := range w.size {
		m := &clusterMember{w: w, index: i, mem: vfs.NewCrashableMem()}
		m.wall.Store(int64(pick(w.rng, 0, 0, time.Hour, -time.Hour)))
		w.members = append(w.members, m)
	}
	for _, i := range w.rng.Perm(w.size) {
		m := w.members[i]
		m.restart = true
		w.later(time.Duration(w.rng.Int64N(int64(2*time.Second))), func() { m.begin(true); m.restart = false })
	}
	for i := range w.clients {
		c := w.newClient(i+1, rand.New(rand.NewPCG(w.seed, uint64(i)+100)))
		w.calls.Go(func() { c.live(w.length + settled) })
	}
	next := 3 * time.Second
	for w.now() < w.length && !w.broken() {
		w.pass(min(next, w.length) - w.now())
		if w.now() >= next {
			w.fault()
			next = w.now() + time.Duration(w.rng.Int64N(int64(w.pause)))
		}
	}
	if !w.broken() {
		w.heal()
	}
	if !w.broken() {
		w.finish()
	}
	for _, m := range w.members {
		m.crash(100, false)
	}
	w.calls.Wait()
}

// pass lets time pass, does the tasks that are due, and notices members that have failed.
func (w *clusterWorld) pass(d time.Duration) {
	for until := w.now() + max(0, d); !w.broken(); {
		for len(w.agenda) > 0 && w.agenda[0].at <= w.now() {
			task := w.agenda[0]
			w.agenda = w.agenda[1:]
			task.do()
		}
		for _, m := range w.members {
			if m.run != nil && m.run.died.Load() {
				m.crash(w.percent(), false)
				w.startLater(m, w.rng.IntN(2) == 0)
			}
		}
		w.crashVoters()
		left := until - w.now()
		if left <= 0 {
			return
		}
		if len(w.agenda) > 0 {
			left = min(left, w.agenda[0].at-w.now())
		}
		timer := time.NewTimer(max(1, min(left, 10*time.Millisecond)))
		select {
		case <-timer.C:
		case i := <-w.voted:
			w.voted <- i
		}
		timer.Stop()
	}
}

// watch sees each message that a member sends. It lets some voters crash before anybody counts on the
// vote.
func (w *clusterWorld) watch(from int, m *raftpb.Message) {
	if w.judgeVote(from, m) && rand.New(rand.NewPCG(w.seed, uint64(w.now()))).IntN(100) < w.voters {
		w.voted <- from
	}
}

func (w *clusterWorld) crashVoters() {
	for {
		select {
		case i := <-w.voted:
			if m := w.members[i]; m.run != nil && w.now() < w.length {
				w.count("crash after a vote")
				m.crash(0, false)
				if !m.restart {
					m.restart = true
					w.later(w.upTo(20*time.Millisecond), func() { m.begin(false); m.restart = false })
				}
			}
		default:
			return
		}
	}
}

func (w *clusterWorld) percent() int { return pick(w.rng, 0, 0, 100, w.rng.IntN(101)) }

func (w *clusterWorld) startLater(m *clusterMember, reboot bool) {
	if m.restart {
		return
	}
	m.restart = true
	w.later(time.Duration(w.rng.Int64N(int64(pick(w.rng, time.Second, 5*time.Second, 20*time.Second)))), func() {
		m.restart = false
		m.begin(reboot)
	})
}

func (w *clusterWorld) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d)))
}

// fault does something bad to a member, most often to one that leads.
func (w *clusterWorld) fault() {
	m := w.members[w.rng.IntN(w.size)]
	if list := w.leaders(); len(list) > 0 && w.rng.IntN(2) == 0 {
		m = list[w.rng.IntN(len(list))].run.clusterMember
	}
	o := w.members[w.rng.IntN(w.size)]
	switch w.rng.IntN(18) {
	case 0, 1:
		w.kill(m, false)
	case 2:
		w.kill(m, true)
	case 3: // all at once
		w.count("all crash")
		for _, m := range w.members {
			w.kill(m, true)
		}
	case 4:
		if m.run != nil {
			w.count("stop")
			m.stop()
			w.startLater(m, w.rng.IntN(3) == 0)
		}
	case 5, 6:
		if r := m.run; r != nil {
			w.count("freeze")
			d := time.Second + w.upTo(pick(w.rng, 3*time.Second, 8*time.Second, 59*time.Second))
			w.logf(-1-m.index, "is frozen for %v", d)
			r.freeze(d)
			w.later(d, r.unfreeze)
		}
	case 7, 8: // split
		w.count("split")
		side := map[int]bool{m.index: true}
		for i := range w.size {
			if w.size > 3 && w.rng.IntN(3) == 0 {
				side[i] = true
			}
		}
		w.logf(0, "a split, with %v on one side", side)
		w.cutWhere(func(a, b int) bool { return side[a] != side[b] })
	case 9: // one way
		w.count("one-way cut")
		all := w.rng.IntN(2) == 0
		in := w.rng.IntN(2) == 0
		w.logf(0, "a cut from %s to %s, all: %t, in: %t", memberName(m.index), memberName(o.index), all, in)
		w.cutWhere(func(a, b int) bool {
			if in {
				a, b = b, a
			}
			return a == m.index && (all || b == o.index)
		})
	case 10:
		w.count("late network")
		late := w.upTo(pick(w.rng, 20*time.Millisecond, 300*time.Millisecond, 3*time.Second))
		w.logf(0, "packets of %s are late by %v", memberName(m.index), late)
		set := func(d time.Duration) {
			for i := range w.size {
				w.net.setLate(m.index, i, d)
				w.net.setLate(i, m.index, d)
			}
		}
		set(late)
		w.later(w.upTo(10*time.Second), func() { set(0) })
	case 11:
		if m.run != nil {
			w.count("disk hangs")
			d := w.upTo(pick(w.rng, 500*time.Millisecond, 5*time.Second, 15*time.Second))
			w.logf(-1-m.index, "the disk hangs for %v", d)
			m.run.disk.hang(d)
		}
	case 12:
		if m.run != nil {
			f := pick(w.rng, full, failingSyncs, failingWrites)
			w.count("disk fails")
			w.logf(-1-m.index, "the disk fails: %d", f)
			m.run.disk.fail(f)
		}
	case 13:
		w.loseDisk(m)
	case 14:
		w.transfer(m, "")
	case 16, 17: // a leader that is cut off and does not notice it for long
		list := w.leaders()
		if len(list) == 0 {
			return
		}
		if from := list[0].run; from.index != w.slow {
			w.transfer(from.clusterMember, memberName(w.slow))
		}
		w.later(time.Second, func() {
			w.count("slow leader cut off")
			w.logf(-1-w.slow, "is cut off")
			w.cutWhere(func(a, b int) bool { return a == w.slow || b == w.slow })
		})
	case 15:
		w.count("wall clock set")
		m.wall.Add(int64(pick(w.rng, time.Minute, -time.Minute, time.Hour, -time.Hour)))
	}
}

func (w *clusterWorld) transfer(m *clusterMember, to string) {
	if r := m.run; r != nil {
		w.count("transfer")
		w.logf(-1-m.index, "hands over to %q", to)
		w.calls.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = r.member.Transfer(ctx, to) // it may not lead
		})
	}
}

func (w *clusterWorld) kill(m *clusterMember, power bool) {
	if m.run == nil {
		return
	}
	w.count("crash")
	percent := 100 // the kernel keeps what a process has written
	if power {
		percent = w.percent()
	}
	m.crash(percent, power)
	w.startLater(m, power)
}

// cutWhere cuts links for some seconds.
func (w *clusterWorld) cutWhere(is func(a, b int) bool) {
	var cut [][2]int
	for a := range w.size {
		for b := range w.size {
			if a != b && is(a, b) {
				cut = append(cut, [2]int{a, b})
				w.net.cut(a, b)
			}
		}
	}
	w.later(w.upTo(pick(w.rng, 2*time.Second, 6*time.Second, 20*time.Second)), func() {
		for _, pair := range cut {
			w.net.mend(pair[0], pair[1])
		}
	})
}

// loseDisk gives a member an empty disk, unless another one has not caught up since that happened to
// it.
func (w *clusterWorld) loseDisk(m *clusterMember) {
	if !w.caughtUp(m) || w.lost >= 0 && !w.caughtUp(w.members[w.lost]) {
		return
	}
	w.count("lost disk")
	w.lost = m.index
	m.crash(0, true)
	w.logf(-1-m.index, "has lost its disk")
	m.mem = vfs.NewCrashableMem()
	w.startLater(m, true)
}

// caughtUp reports whether a member is one of as many voters as there should be, and has all entries.
// Each other member must know that: one that does not know yet that a learner has got a vote asks
// only the voters before for theirs.
func (w *clusterWorld) caughtUp(m *clusterMember) bool {
	list := w.leaders()
	if len(list) == 0 || m.run == nil {
		return false
	}
	leader := slices.MaxFunc(list, func(a, b *term) int { return cmp.Compare(a.number, b.number) })
	s := leader.run.member.Status()
	at := slices.IndexFunc(s.Members, func(x cluster.MemberStatus) bool {
		return x.Name == memberName(m.index) && x.Reached && x.Match >= s.Committed
	})
	learns := slices.ContainsFunc(s.Members, func(x cluster.MemberStatus) bool { return x.Learner })
	if at < 0 || learns || len(s.Members) != w.size || m.run.member.Status().Cluster == "" {
		return false
	}
	return !slices.ContainsFunc(w.members, func(o *clusterMember) bool {
		known := o.known
		if o.run != nil {
			known = o.run.member.Status().Members
		}
		return !slices.ContainsFunc(known, func(x cluster.MemberStatus) bool { return x.ID == s.Members[at].ID && !x.Learner })
	})
}

// heal ends all faults, and waits until every member runs and the cluster grants.
func (w *clusterWorld) heal() {
	w.logf(0, "all faults end")
	w.net.mendAll()
	for a := range w.size {
		for b := range w.size {
			w.net.setLate(a, b, 0)
		}
	}
	for _, m := range w.members {
		if m.run != nil {
			m.run.unfreeze()
			m.run.disk.fail(sound)
			m.run.disk.clearHangs()
		}
	}
	w.agenda = nil
	for _, m := range w.members {
		if m.run == nil {
			m.restart = true
			w.later(w.upTo(time.Second), func() { m.begin(false); m.restart = false })
		}
	}
	healed := w.now()
	for !w.broken() {
		w.pass(100 * time.Millisecond)
		if list := w.leaders(); len(list) == 1 {
			if !slices.ContainsFunc(w.members, func(m *clusterMember) bool { return !w.caughtUp(m) }) {
				break
			}
		}
		if w.now() > healed+settled {
			what := ""
			for _, m := range w.members {
				if m.run != nil {
					what += fmt.Sprintf("\n%+v", m.run.member.Status())
				}
			}
			w.violate(ruleProgress, "the members have not come together %v after all faults ended:%s", settled, what)
			return
		}
	}
	w.logf(0, "all members are together again after %v", w.now()-healed)
}

// finish lets each member lead in turn. Clients go on, so each one must have what was acknowledged.
// At the end each mutex must be free when the longest lease has passed.
func (w *clusterWorld) finish() {
	for i := range w.size {
		name := memberName(i)
		w.pass(time.Second)
		list := w.leaders()
		// A leader that was frozen just before may only now note that it has heard no majority.
		for waited := time.Duration(0); len(list) != 1 && waited < settled; waited += 100 * time.Millisecond {
			w.pass(100 * time.Millisecond)
			list = w.leaders()
		}
		if len(list) != 1 {
			w.violate(ruleProgress, "%d members lead", len(list))
		}
		if w.broken() {
			return
		}
		if from := list[0].run; from.index != i {
			began := w.now()
			leads := func() bool {
				list := w.leaders()
				return len(list) == 1 && list[0].run.index == i
			}
			var err error
			for !leads() && w.now() < began+5*time.Second {
				if list := w.leaders(); len(list) == 1 {
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
					err = list[0].run.member.Transfer(ctx, name)
					cancel()
				}
				w.pass(100 * time.Millisecond)
			}
			if !leads() {
				w.violate(ruleProgress, "%s does not lead 5 s after %s was asked to hand over: %v", name, memberName(from.index), err)
				return
			}
		}
	}
	w.pass(w.length + settled - w.now()) // the clients end
	w.pass(time.Minute)                  // as do all leases
	last := w.newClient(w.clients+1, rand.New(rand.NewPCG(w.seed, 99)))
	for i := range w.mutexes {
		mx := w.mutexesByName[mutexName(i)]
		if !last.connect() {
			w.violate(ruleProgress, "nobody leads at the end")
			return
		}
		last.acquire(mx, false, false)
		if last.mine[mx] == nil && !w.broken() {
			w.violate(ruleProgress, "at the end nobody can acquire %s", mx.name)
		}
	}
}
