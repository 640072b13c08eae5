package simulation

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/cluster"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
)

// clusterWorld is a cluster in a synctest bubble: members with their disks and clocks, a network
// between them, and clients. Each member is what cmd/simba-resp runs, from cluster.Open to the engine.
// Clients call the engine of a member that leads, and take an outcome as a reply when Commit has
// returned for it.
type clusterWorld struct {
	clusterConfig
	seed    uint64
	rng     *rand.Rand // of the main goroutine
	report  *report
	start   time.Time
	net     *network
	members []*clusterMember
	calls   sync.WaitGroup // goroutines of clients
	agenda  []task         // belongs to the main goroutine
	voted   chan int       // indexes of members that have voted and will crash
	lost    int            // index of the member whose disk was lost last, until it has caught up; -1 = none

	mu sync.Mutex // guards the log, the counts and the judge
	clusterJudge
	lines []line
}

// clusterConfig has the settings of a run.
type clusterConfig struct {
	size    int // members
	clients int
	mutexes int
	length  time.Duration // of the run
	pause   time.Duration // between faults, at most
	voters  int           // of 100 votes, the number after which the voter crashes
	slow    int           // index of the member whose clock makes raft's ticks late, so that it leads too long
}

func (c clusterConfig) String() string {
	return fmt.Sprintf("%d members, %d clients, %d mutexes, %v, a fault in %v", c.size, c.clients, c.mutexes, c.length, c.pause)
}

func drawCluster(rng *rand.Rand) clusterConfig {
	size := pick(rng, 3, 3, 3, 5)
	return clusterConfig{
		size:    size,
		clients: 3 + rng.IntN(8),
		mutexes: 1 + rng.IntN(4),
		length:  time.Duration(30+rng.IntN(60)) * time.Second,
		pause:   pick(rng, 2*time.Second, 5*time.Second, 10*time.Second),
		voters:  pick(rng, 0, 0, 10, 30),
		slow:    rng.IntN(size),
	}
}

// task is something that the main goroutine does at a time.
type task struct {
	at time.Duration
	do func()
}

func (w *clusterWorld) now() time.Duration { return time.Since(w.start) }

func (w *clusterWorld) later(d time.Duration, do func()) {
	w.agenda = append(w.agenda, task{w.now() + d, do})
	slices.SortStableFunc(w.agenda, func(a, b task) int { return cmp.Compare(a.at, b.at) })
}

// logf logs a line. who sorts the lines of one instant.
func (w *clusterWorld) logf(who int, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logLocked(who, format, args...)
}

func (w *clusterWorld) logLocked(who int, format string, args ...any) {
	at := w.now()
	name := fmt.Sprint("c", who)
	switch {
	case who == 0:
		name = "world"
	case who < 0:
		name = memberName(-who - 1)
	}
	w.lines = append(w.lines, line{at, who, "", fmt.Sprintf("%15v %-6s %s", at, name, fmt.Sprintf(format, args...))})
}

func (w *clusterWorld) count(kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.report.counts[kind]++
}

func (w *clusterWorld) violate(rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.violateLocked(rule, format, args...)
}

func (w *clusterWorld) violateLocked(rule, format string, args ...any) {
	what := fmt.Sprintf("at %v: %s", w.now(), fmt.Sprintf(format, args...))
	w.report.violations = append(w.report.violations, violation{rule, what})
	w.logLocked(0, "VIOLATION of %q: %s", rule, what)
}

func (w *clusterWorld) broken() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.report.violations) > 0
}

// trace returns a hash of the log.
func trace(log []string) string {
	h := fnv.New64a()
	for _, l := range log {
		fmt.Fprintln(h, l)
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

func memberName(index int) string { return string(rune('a' + index)) }

// clusterMember is a member. Only the main goroutine may change what has no lock of its own.
type clusterMember struct {
	w     *clusterWorld
	index int
	wall  atomic.Int64 // how far its wall clock is ahead, in nanoseconds

	mem     *vfs.MemFS             // while it is down
	known   []cluster.MemberStatus // the members that it knew when it last ran
	boots   int
	booted  time.Duration // the zero of the machine's boot clock
	run     *clusterRun   // nil = it is down
	restart bool          // a task will start it
}

// clusterRun is the process of a member.
type clusterRun struct {
	*clusterMember
	life    uint64
	boot    persist.Boot
	disk    *disk
	replica *persist.Replica
	member  *cluster.Member
	died    atomic.Bool   // it has called Fatal
	over    chan struct{} // closed when the process has ended

	mu      sync.Mutex // guards what follows
	serving *term      // nil = it does not lead
	thaw    chan struct{}
	ended   bool
}

// term is the engine of a member that leads.
type term struct {
	run      *clusterRun
	number   uint64
	engine   *engine.Engine
	done     chan struct{} // closed when the engine has stopped
	sessions atomic.Uint64
}

// slowCaller reports whether an fsync takes time. It does for what goes to the journal and to the file
// MEMBER. It does not where the code holds a mutex meanwhile for which others wait: then the fake time
// would stand still.
func slowCaller() bool {
	var pcs [40]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	slow := false
	for {
		f, more := frames.Next()
		switch {
		case strings.HasSuffix(f.Function, "Replica).Append"), strings.HasSuffix(f.Function, "cluster.(*file).change"):
			slow = true
		case strings.HasSuffix(f.Function, "Journal).Truncate"), strings.HasSuffix(f.Function, "Replica).Install"),
			strings.HasSuffix(f.Function, "checkpointer).advanced"):
			return false
		}
		if !more {
			return slow
		}
	}
}

// begin starts a member on its disk. reboot means that the machine has rebooted.
func (m *clusterMember) begin(reboot bool) {
	w := m.w
	if reboot || m.boots == 0 {
		m.boots++
		m.booted = w.now() - time.Duration(w.rng.Int64N(int64(100*time.Hour)))
	}
	booted := m.booted
	r := &clusterRun{clusterMember: m, over: make(chan struct{})}
	r.life = uint64(w.rng.Uint32())
	r.boot = persist.Boot{
		ID:  fmt.Sprintf("boot %d of %d", m.boots, m.index),
		Now: func() simba.Instant { return simba.Instant(w.now() - booted) },
	}
	period := pick(w.rng, 0, 300*time.Microsecond, 2*time.Millisecond, 10*time.Millisecond)
	if period > 0 {
		period += time.Duration(m.index*101 + w.rng.IntN(100))
	}
	r.disk = newDisk(m.mem, w.start, period)
	r.disk.waits = slowCaller
	logger := slog.New(slog.DiscardHandler)
	if debugLog != nil {
		logger = slog.New(slog.NewTextHandler(&debugWriter{w: w, who: -1 - m.index}, &slog.HandlerOptions{Level: *debugLog}))
	}
	opened := make(chan struct{})
	fatal := func(err error) { // the process exits
		if r.died.Swap(true) || r.hasEnded() {
			return
		}
		w.logf(-1-m.index, "fails: %v", err)
		if !r.disk.mayEnd() {
			w.violate(ruleClusterFatal, "member %s ends without a fault: %v", memberName(m.index), err)
		}
		r.end()
		w.net.kill(m.index, false)
		w.calls.Go(func() { // until then, operations of Pebble block others
			<-opened
			r.disk.kill()
			_ = r.replica.Close() // says why the disk has failed
		})
	}
	var err error
	r.replica, err = persist.OpenReplica(persist.Options{
		Dir: "data", FS: r.disk, Boot: r.boot, Logger: logger, Fatal: fatal,
		Wall:        func() time.Time { return time.Now().Add(time.Duration(m.wall.Load())) },
		SegmentSize: 16 << 10,
	})
	if err != nil {
		w.violate(ruleKept, "member %s cannot open its data: %v", memberName(m.index), err)
		return
	}
	var peers []cluster.Peer
	for i := range w.size {
		peers = append(peers, cluster.Peer{Name: memberName(i), Addr: addrOf(i)})
	}
	r.member, err = cluster.Open(cluster.Options{
		Name: memberName(m.index), Peers: peers, Listener: w.net.listen(m.index), Replica: r.replica,
		Lead:     func(l *cluster.Lead) { <-opened; r.lead(l) },
		Serve:    func(c net.Conn) { c.Close() },
		Users:    func() string { return "" },
		Fatal:    fatal,
		Logger:   logger,
		Election: w.election(m.index),
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return w.net.dial(ctx, m.index, addr)
		},
	})
	close(opened)
	if err != nil {
		w.violate(ruleKept, "member %s does not start: %v", memberName(m.index), err)
		return
	}
	r.disk.setCalm(false)
	w.mu.Lock()
	m.run = r
	w.mu.Unlock()
	w.logf(-1-m.index, "starts, boot %d, an fsync takes %v", m.boots, period)
}

func (w *clusterWorld) election(member int) time.Duration {
	if member == w.slow {
		return 4 * time.Second
	}
	return pick(w.rng, time.Second, 1200*time.Millisecond)
}

func (r *clusterRun) hasEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// lead serves clients for one term, as cmd/simba-resp does.
func (r *clusterRun) lead(l *cluster.Lead) {
	w := r.w
	clock := engine.ClockOf(r.boot.Now).WithWall(func() time.Time { return time.Now().Add(time.Duration(r.wall.Load())) })
	store, recovered, err := r.replica.Lead(persist.LeadOptions{Now: clock.Now, Propose: l.Propose, Confirm: l.Confirm, Format: l.Format})
	var e *engine.Engine
	if err == nil {
		e, err = engine.New(engine.Config{
			Clock: clock, HandoffWindow: time.Second, QueueGrace: time.Second, Notices: &clusterNotices{r}, Hash: fixedHash,
		}, store, engine.Recovery(*recovered))
		if err != nil {
			store.Close()
		}
	}
	if err != nil {
		select {
		case <-l.Done:
		default:
			if !r.died.Load() && !r.hasEnded() {
				w.violate(ruleClusterFatal, "member %s cannot lead: %v", memberName(r.index), err)
			}
		}
		return
	}
	t := &term{run: r, number: l.Term, engine: e, done: make(chan struct{})}
	w.logf(-1-r.index, "leads")
	w.count("term")
	r.mu.Lock()
	if !r.ended {
		r.serving = t
	}
	r.mu.Unlock()
	l.Serve()
	<-l.Done
	r.mu.Lock()
	r.serving = nil
	r.mu.Unlock()
	for s := range t.sessions.Load() { // the connections end; the changes are those of an old term
		for i := range w.mutexes {
			for c := range w.clients {
				_, _, _ = e.Release(context.Background(), simba.ReleaseRequest{Mutex: mutexName(i), Contender: clientName(c + 1), Session: s + 1})
			}
		}
	}
	e.Stop()
	close(t.done)
	_ = store.Close() // commits that fail say so to their callers
	w.logf(-1-r.index, "leads no more")
}

// awaitThaw returns when the process runs, or false if it has ended.
func (r *clusterRun) awaitThaw() bool {
	for {
		r.mu.Lock()
		thaw, ended := r.thaw, r.ended
		r.mu.Unlock()
		if ended || thaw == nil {
			return !ended
		}
		select {
		case <-thaw:
		case <-r.over:
			return false
		}
	}
}

// leaders returns the terms that clients find.
func (w *clusterWorld) leaders() (list []*term) {
	for _, m := range w.members {
		w.mu.Lock()
		r := m.run
		w.mu.Unlock()
		if r == nil {
			continue
		}
		r.mu.Lock()
		if r.serving != nil {
			list = append(list, r.serving)
		}
		r.mu.Unlock()
	}
	return list
}

// end marks the end of a process. From now on no reply and no notice of it counts.
func (r *clusterRun) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		close(r.over)
	}
	r.ended, r.serving = true, nil
}

// crash ends a member as kill -9 does, or as a power cut. A percentage of its unsynced data is left.
func (m *clusterMember) crash(percent int, power bool) {
	r, w := m.run, m.w
	if r == nil {
		return
	}
	synctest.Wait()
	m.known = r.member.Status().Members
	w.logf(-1-m.index, "a crash that keeps %d%%, power cut: %t", percent, power)
	r.end()
	w.net.kill(m.index, power)
	m.mem = r.disk.crash(percent, w.seed, r.life)
	r.disk.kill()
	r.tearDown()
}

// stop ends a member as SIGTERM does.
func (m *clusterMember) stop() {
	r, w := m.run, m.w
	if r == nil {
		return
	}
	w.logf(-1-m.index, "an orderly stop")
	m.known = r.member.Status().Members
	r.unfreeze()
	if _, leads := r.member.Leader(); leads && len(r.member.Status().Members) > 1 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = r.member.Transfer(ctx, "") // if no other member can take over, the stop goes on
		cancel()
	}
	r.mu.Lock()
	r.serving = nil
	r.mu.Unlock()
	if r.died.Load() {
		m.crash(100, false)
		return
	}
	r.member.Close()
	died := r.died.Load()
	if err := r.replica.Close(); err != nil && !died && !r.died.Load() {
		w.violate(ruleClusterFatal, "the data of member %s do not close: %v", memberName(m.index), err)
	}
	if r.died.Load() {
		synctest.Wait()
		m.mem = r.disk.crash(100, w.seed, r.life)
	}
	r.end()
	w.net.kill(m.index, false)
	r.disk.kill()
	w.mu.Lock()
	defer w.mu.Unlock()
	m.run = nil
}

func (r *clusterRun) tearDown() {
	r.member.Close()
	_ = r.replica.Close() // fails if the disk has failed
	synctest.Wait()
	r.w.mu.Lock()
	defer r.w.mu.Unlock()
	r.clusterMember.run = nil
}

// freeze stops a process as SIGSTOP does, as far as others see it: its network, its disk and its
// replies.
func (r *clusterRun) freeze(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.thaw != nil {
		return
	}
	r.thaw = make(chan struct{})
	r.w.net.freeze(r.index, true)
	r.disk.hang(d)
}

func (r *clusterRun) unfreeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.thaw == nil {
		return
	}
	close(r.thaw)
	r.thaw = nil
	r.w.net.freeze(r.index, false)
}

// clusterNotices tells the judge the notices of a member.
type clusterNotices struct{ run *clusterRun }

func (n *clusterNotices) Publish(channel, payload string) int {
	r := n.run
	r.mu.Lock()
	reaches := r.thaw == nil && !r.ended
	r.mu.Unlock()
	if reaches {
		r.w.judgeNotice(channel, payload)
	}
	return 0
}

func (*clusterNotices) Subscribed(string) bool        { return false }
func (*clusterNotices) SubscribedPattern(string) bool { return false }
func (*clusterNotices) Any() bool                     { return true }

// debugWriter writes the logs of members into that of the run.
type debugWriter struct {
	w   *clusterWorld
	who int
}

func (d *debugWriter) Write(b []byte) (int, error) {
	_, text, _ := strings.Cut(strings.TrimSpace(string(b)), "level=")
	d.w.logf(d.who, "%s", text)
	return len(b), nil
}
