package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/backendtest"
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/resp"
)

// durability is the server's --durability.
type durability uint8

const (
	always durability = iota
	async
	memory
)

func (d durability) String() string { return [...]string{"always", "async", "memory"}[d] }

// config is what a seed decides before the run begins.
type config struct {
	durability durability
	window     time.Duration // of a handoff
	grace      time.Duration // of a queue
	period     time.Duration // of the disk, see disk
	late       time.Duration // how much later than the disk the journal acknowledges
	clients    int
	mutexes    int
	actions    int
	faults     int // how often something breaks, in thousandths of the actions
}

func (c config) String() string {
	return fmt.Sprintf("%v, window %v, grace %v, fsync %v, %d clients, %d mutexes, %d actions, faults %d‰",
		c.durability, c.window, c.grace, c.period, c.clients, c.mutexes, c.actions, c.faults)
}

func draw(rng *rand.Rand) config {
	return config{
		durability: pick(rng, always, always, always, async, async, memory),
		window:     pick(rng, 0, time.Second, time.Second, 300*time.Millisecond, 4*time.Second),
		grace:      pick(rng, 5*time.Second, 5*time.Second, 500*time.Millisecond, 0, 30*time.Second),
		period:     pick(rng, 0, 0, 200*time.Microsecond, 7*time.Millisecond, 300*time.Millisecond),
		clients:    3 + rng.IntN(10),
		mutexes:    1 + rng.IntN(4),
		actions:    100 + rng.IntN(150),
		faults:     pick(rng, 0, 15, 30, 60),
	}
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// world is a whole server in the memory of a bubble: its disk, its machine's clocks, its clients.
// What it does is decided by its seed, one thing at a time; all its methods but those that say
// otherwise are called by the bubble's main goroutine.
type world struct {
	config
	rng    *rand.Rand
	report *report
	lines  []line
	start  time.Time
	wall   atomic.Int64 // how far the wall clock is ahead, in nanoseconds
	inbox  inbox
	lulls  *lulls
	crew   sync.WaitGroup // goroutines of wires

	clients []*client
	model   *model
	judge

	// Of the server's present life.
	life     int
	up       bool
	boot     persist.Boot
	boots    int
	booted   time.Duration            // the zero of this boot's clock
	stored   map[string]time.Duration // by mutex: when the lease began that this life found
	disk     *disk
	store    *persist.Store
	engine   *engine.Engine
	broker   *resp.Broker
	server   *resp.Server
	wires    []*wire
	onlooker *wire
	fatal    atomic.Int64 // when persist.Options.Fatal was called; 0 = not
}

// client is a contender and its connections.
type client struct {
	name  string
	proto int
	wire  *wire   // for requests
	ear   *wire   // for its own channels
	old   []*wire // left open by a retry
	known map[*mutex]uint64
}

// wire is one connection. Fields after mu are the main goroutine's.
type wire struct {
	w     *world
	id    int
	life  int
	owner string
	nc    net.Conn

	mu      sync.Mutex
	stalled chan struct{} // closed when the client reads again; nil = it does

	pending  []*request
	half     []byte // what is left to send of the request that is on its way
	halfOf   *request
	watched  map[*mutex]int
	channels []*mutex // whose channel of its owner it listens to
	hungUp   bool     // the client has closed it
	gone     bool     // the server has
	met      bool     // the server has met its end
	over     bool     // the client has read all there is
	lax      bool     // it did not read for a while
}

func (w *world) now() time.Duration { return time.Since(w.start) } // by any goroutine

// settledBy is when a change of t is durable, as far as is known now.
func (w *world) settledBy(t time.Duration) time.Duration { return w.disk.settledBy(t) + w.late }

// lateness is how much later than the disk the journal acknowledges now.
func (w *world) lateness() time.Duration {
	if w.disk.isCalm() {
		return 0
	}
	return w.late
}

func (w *world) wallNow() time.Time { return time.Now().Add(time.Duration(w.wall.Load())) } // likewise

func (w *world) wallMillis() int64 {
	return w.start.Add(w.model.now).Add(time.Duration(w.wall.Load())).UnixMilli()
}

// line is one of the log.
type line struct {
	at   time.Duration
	wire int // 0 = the world's
	of   string
	text string
}

func (w *world) logf(k *wire, at time.Duration, format string, args ...any) {
	id, who := 0, "world"
	if k != nil {
		id, who = k.id, fmt.Sprintf("%s/%d", k.owner, k.id)
	}
	w.lines = append(w.lines, line{at, id, "", fmt.Sprintf("%14v %-8s %s", at, who, fmt.Sprintf(format, args...))})
}

// logOf is logf for what is told unasked: the order of mutexes is nobody's business.
func (w *world) logOf(mx *mutex, k *wire, at time.Duration, format string, args ...any) {
	w.logf(k, at, format, args...)
	w.lines[len(w.lines)-1].of = mx.name
}

func (w *world) count(kind string) { w.report.counts[kind]++ }

// subscribers are the wires that listen to a contender's own channel.
func (w *world) subscribers(mx *mutex, who string) (list []*wire) {
	for _, k := range w.wires {
		if k.owner == who && !k.gone && slices.Contains(k.channels, mx) {
			list = append(list, k)
		}
	}
	return list
}

// begin starts the server on what a file system has, and finds out what it remembers.
// Afterwards the machine has been booted anew if reboot is set.
func (w *world) begin(mem *vfs.MemFS, reboot bool) {
	w.life++
	if reboot || w.boots == 0 {
		w.boots++
		booted := w.now() - time.Hour
		w.booted, w.boot = booted, persist.Boot{ID: fmt.Sprint("boot ", w.boots), Now: func() simba.Instant { return simba.Instant(w.now() - booted) }}
	}
	w.fatal.Store(0)
	w.frozen = false
	w.wires = nil
	w.disk = newDisk(mem, w.start, w.period)
	w.broker = resp.NewBroker()
	quiet := slog.New(slog.DiscardHandler)
	clock := engine.NewClock(w.boot.Now()).WithWall(w.wallNow)
	var journal engine.Journal
	var rec engine.Recovery
	if w.store = nil; w.durability == memory {
		journal, rec = engine.Memory(), engine.Recovery{Token: uint64(w.life) << 32, Seq: simba.Seq(w.life) << 32}
	} else {
		mode := persist.Always
		if w.durability == async {
			mode = persist.Async
		}
		store, recovered, err := persist.Open(persist.Options{
			Dir: "data", FS: w.disk, Mode: mode, Boot: w.boot, Now: clock.Now, Wall: w.wallNow, Logger: quiet,
			Fatal: func(error) {
				w.fatal.Store(int64(w.now()))
				w.inbox.add(happening{at: w.now(), what: died})
			},
			Yield:       w.yields(),
			SegmentSize: 8 << 10, // a run fills several
		})
		if err != nil {
			w.violate(ruleDurable, "what the crash left cannot be opened: %v", err)
			return
		}
		w.store, journal, rec = store, store, engine.Recovery(*recovered)
		if w.late > 0 {
			journal = backendtest.Late(store, w.lateness)
		}
		w.stored = make(map[string]time.Duration)
		for l, err := range rec.Leases {
			if err != nil {
				w.violate(ruleDurable, "what the crash left cannot be read: %v", err)
				return
			}
			w.stored[l.Mutex] = w.booted + time.Duration(l.Acquired)
		}
	}
	e, err := engine.New(engine.Config{
		Clock: clock, HandoffWindow: w.window, QueueGrace: w.grace, Notices: commands.Notices(w.broker), Hash: fixedHash, OnTimer: w.turns(),
	}, journal, rec)
	if err != nil {
		w.violate(ruleDurable, "the engine does not start: %v", err)
		return
	}
	w.engine = e
	x := commands.New(commands.Config{Backend: e, Logger: quiet})
	w.server = resp.NewServer(resp.Config{Committer: e, Limits: resp.Limits{Long: x.LongArguments, WriteTimeout: unread}, Broker: w.broker, Logger: quiet}, x)
	x.Attach(w.server)
	w.up = true
	w.logf(nil, w.now(), "the server runs, life %d, boot %d, quiet for %v", w.life, w.boots, rec.Delay)
	w.lulls.rest()
	w.audit(rec.Delay, reboot)
	w.disk.setCalm(false)
}

// turns lets the timers of an instant come in the order of the mutexes' hashes, each when nobody has anything left to do of
// what the one before did.
func (w *world) turns() func(hash uint64) {
	yield := w.yields()
	return func(hash uint64) {
		for _, mx := range w.model.mutexes {
			if fixedHash(mx.name) < hash {
				yield()
			}
		}
	}
}

// yields returns what lets all others go on, in this life.
func (w *world) yields() func() {
	dead := w.disk.dead
	return func() { w.lulls.yield(dead) }
}

// dial opens a connection. The server must be up.
func (w *world) dial(owner string, proto int) *wire {
	near, far := net.Pipe()
	w.judge.wireIDs++
	k := &wire{w: w, id: w.judge.wireIDs, life: w.life, owner: owner, nc: near, watched: map[*mutex]int{}}
	s := w.server
	w.crew.Go(func() { s.ServeConn(&serverEnd{Conn: far, wire: k}) })
	w.crew.Go(k.read)
	w.wires = append(w.wires, k)
	if proto == 3 {
		w.send(k, &request{kind: reqHello})
	}
	return k
}

// hangUp has the client close a connection.
func (w *world) hangUp(k *wire) {
	k.hungUp = true
	k.resume()
	k.nc.Close()
}

// stop is an orderly stop: clients are told, everything is written.
func (w *world) stop() *vfs.MemFS {
	w.logf(nil, w.now(), "an orderly stop")
	w.stopping, w.orderly = true, true
	for _, mx := range w.model.mutexes {
		mx.queue, mx.reserved = nil, nil // who waits is told to ask again
	}
	for _, k := range w.wires {
		if k.halfOf != nil {
			k.halfOf = nil
		}
		k.resume()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		w.violate(ruleLiveness, "an orderly stop: %v", err)
	}
	w.sleep(w.settledBy(w.now()) - w.now()) // Stop waits for it under a lock, where fake time stands still
	if w.fatal.Load() != 0 {
		// The disk hung for longer than the store is patient.
		return w.crash(w.percent())
	}
	w.engine.Stop()
	if w.store != nil {
		if err := w.store.Close(); err != nil {
			w.violate(ruleFatal, "an orderly stop: %v", err)
		}
	}
	w.bury()
	return w.disk.mem
}

// crash is the end of the process, by kill -9 or a power cut: of what was not synced, percent is
// left.
func (w *world) crash(percent int) *vfs.MemFS {
	w.logf(nil, w.now(), "a crash that keeps %d%%", percent)
	left := w.disk.crash(percent, w.report.seed, uint64(w.life))
	w.orderly = false
	w.disk.kill()
	w.bury()
	return left
}

// bury takes down what is left of a life, unseen by anybody.
func (w *world) bury() {
	w.up = false
	life := w.life
	w.life = -1 // whatever happens from now on does not count
	if !w.disk.killed {
		w.disk.kill()
	}
	for _, k := range w.wires {
		k.resume()
		k.nc.Close()
	}
	if w.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := w.server.Shutdown(ctx); err != nil {
			w.violate(ruleNothingLeft, "connections of a process that ended: %v", err)
		}
		cancel()
	}
	if w.engine != nil {
		w.engine.Stop()
	}
	if w.store != nil {
		_ = w.store.Close() // if it fails, its files are closed in the background
	}
	w.crew.Wait()
	w.lulls.rest()
	w.inbox.take()
	w.life = life
	w.server, w.engine, w.store, w.stopping = nil, nil, nil, false
	for _, c := range w.clients {
		c.wire, c.ear, c.old = nil, nil, nil
	}
}

// fixedHash is the same in each run.
func fixedHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))          // it never fails
	return h.Sum64() * 0x9e3779b97f4a7c15 // the shard is chosen by the upper bits
}
