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
	"github.com/simba-resp/simba-resp/commands"
	"github.com/simba-resp/simba-resp/engine"
	"github.com/simba-resp/simba-resp/persist"
	"github.com/simba-resp/simba-resp/resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/need"
)

type durability uint8

const (
	always durability = iota
	async
	memory
)

func (d durability) String() string { return [...]string{"always", "async", "memory"}[d] }

// config has the settings of a run. draw chooses them by the seed.
type config struct {
	durability durability
	window     time.Duration // the handoff window
	grace      time.Duration // the queue grace
	period     time.Duration // fsyncs return only at multiples of the period: see disk
	late       time.Duration // how long after the fsync the journal acknowledges a change
	clients    int
	mutexes    int
	actions    int
	faults     int // of 1,000 actions, the number that inject a fault
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

// world is a whole server in a synctest bubble, with its disk, its machine's clocks and its
// clients. Only the bubble's main goroutine may call its methods, unless a method says otherwise.
type world struct {
	config
	rng    *rand.Rand
	report *report
	lines  []line
	start  time.Time
	wall   atomic.Int64 // how far the wall clock is ahead of the fake time, in nanoseconds
	inbox  inbox
	lulls  *lulls
	wiring sync.WaitGroup // for the goroutines of wires

	clients []*client
	model   *model
	judge

	// The fields below describe the present life of the server: one process, from start to end.
	life     int
	up       bool
	boot     persist.Boot
	boots    int
	booted   time.Duration            // the zero of the machine's boot clock
	stored   map[string]time.Duration // by mutex: the start of the lease in the recovered data
	disk     *disk
	store    *persist.Store
	engine   *engine.Engine
	broker   *resp.Broker
	server   *resp.Server
	wires    []*wire
	onlooker *wire        // subscribed to all events, and to the channel of each mutex
	fatal    atomic.Int64 // when the store called persist.Options.Fatal; 0 = never
}

type client struct {
	name       string
	proto      int
	wire       *wire             // for requests
	subscriber *wire             // for messages on its own channels
	old        []*wire           // connections that a retry on a new connection left open
	known      map[*mutex]uint64 // the token of its last tenure
}

// wire is one connection of a client. The fields below stalled belong to the main goroutine.
type wire struct {
	w     *world
	id    int
	life  int
	owner string
	nc    net.Conn

	mu      sync.Mutex
	stalled chan struct{} // see pause

	pending  []*request
	half     []byte // the rest of the request halfOf, whose beginning the client has sent
	halfOf   *request
	watched  map[*mutex]int // the versions at WATCH
	channels []*mutex       // subscriptions to the owner's own channels of these mutexes
	hungUp   bool           // the client has closed the wire
	gone     bool           // the server has closed the wire
	noticed  bool           // the server has noticed that the client closed the wire
	over     bool           // the client has read all that the server sent
	lax      bool           // the client stopped reading for a while, so replies may be late
}

func (w *world) now() time.Duration { return time.Since(w.start) } // any goroutine may call it

// durableBy returns when the journal acknowledges a change made at t, if the disk gets no further
// fault.
func (w *world) durableBy(t time.Duration) time.Duration { return w.disk.syncedBy(t) + w.late }

// lateness returns how long after the fsync the journal acknowledges a change. While the server
// starts, this is 0.
func (w *world) lateness() time.Duration {
	if w.disk.isCalm() {
		return 0
	}
	return w.late
}

// wallNow returns the wall clock's time. Any goroutine may call it.
func (w *world) wallNow() time.Time { return time.Now().Add(time.Duration(w.wall.Load())) }

func (w *world) wallMillis() int64 {
	return w.start.Add(w.model.now).Add(time.Duration(w.wall.Load())).UnixMilli()
}

type line struct {
	at   time.Duration
	wire int    // 0 = the line is about no wire
	of   string // the name of a mutex; "" = none
	text string
}

func (w *world) logf(k *wire, at time.Duration, format string, args ...any) {
	id, who := 0, "world"
	if k != nil {
		id, who = k.id, fmt.Sprintf("%s/%d", k.owner, k.id)
	}
	w.lines = append(w.lines, line{at, id, "", fmt.Sprintf("%14v %-8s %s", at, who, fmt.Sprintf(format, args...))})
}

// logOf logs a message about a mutex. The log sorts messages of one instant by mutex.
func (w *world) logOf(mx *mutex, k *wire, at time.Duration, format string, args ...any) {
	w.logf(k, at, format, args...)
	w.lines[len(w.lines)-1].of = mx.name
}

func (w *world) count(kind string) { w.report.counts[kind]++ }

// subscribers returns the wires on which a contender is subscribed to its own channel.
func (w *world) subscribers(mx *mutex, who string) (list []*wire) {
	for _, k := range w.wires {
		if k.owner == who && !k.gone && slices.Contains(k.channels, mx) {
			list = append(list, k)
		}
	}
	return list
}

// begin starts the server on a file system, and compares its state with the model. reboot means
// that the machine has rebooted.
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
	w.disk.beforeFailure = w.goesLast()
	w.broker = resp.NewBroker()
	quiet := slog.New(slog.DiscardHandler)
	clock := engine.NewClock(w.boot.Now()).WithWall(w.wallNow).WithTimers(w.timers())
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
			SegmentSize: 8 << 10, // small, so a run fills several segments
		})
		if err != nil {
			w.violate(ruleDurable, "the data that the crash left cannot be opened: %v", err)
			return
		}
		w.store, journal, rec = store, store, engine.Recovery(*recovered)
		if w.late > 0 {
			journal = conformance.Late(store, w.lateness)
		}
		journal = orderedJournal{journal, w.goesLast()}
		w.stored = make(map[string]time.Duration)
		for l, err := range rec.Leases {
			if err != nil {
				w.violate(ruleDurable, "the data that the crash left cannot be read: %v", err)
				return
			}
			w.stored[l.Mutex] = w.booted + time.Duration(l.Acquired)
		}
	}
	e, err := engine.New(engine.Config{
		Clock: clock, HandoffWindow: w.window, QueueGrace: w.grace, Notices: commands.Notices(w.broker), Hash: fixedHash,
	}, journal, rec)
	if err != nil {
		w.violate(ruleDurable, "the engine does not start: %v", err)
		return
	}
	w.engine = e
	x := commands.New(commands.Config{Backend: e, Logger: quiet})
	w.server = resp.NewServer(resp.Config{Committer: e, Limits: resp.Limits{MayBeLong: x.LongArguments, WriteTimeout: unread}, Broker: w.broker, Logger: quiet}, x)
	x.Attach(w.server)
	w.up = true
	w.logf(nil, w.now(), "the server runs, life %d, boot %d, recovery delay %v", w.life, w.boots, rec.Delay)
	w.lulls.rest()
	w.audit(rec.Delay, reboot)
	w.disk.setCalm(false)
}

// timers returns the engine's source of timers. The timers of one instant run in the order of the
// mutexes' hashes, which is the order in which the engine makes them. Each timer runs after all
// effects of the previous one.
func (w *world) timers() func(time.Duration, func()) *time.Timer {
	yield := w.yields()
	made := uint64(0)
	return func(d time.Duration, tick func()) *time.Timer {
		hash := made << 58 // the smallest of the timer's hashes
		made++
		return time.AfterFunc(d, func() {
			for _, mx := range w.model.mutexes {
				if fixedHash(mx.name) < hash {
					yield()
				}
			}
			tick()
		})
	}
}

// yields returns a function that lets all other goroutines run first. The function returns at once
// when this life of the server has ended.
func (w *world) yields() func() {
	dead := w.disk.dead
	return func() { w.lulls.yield(dead) }
}

// goesLast returns a function that returns after the changes and replies of its instant, at the
// latest when this life of the server has ended.
func (w *world) goesLast() func() {
	yield := w.yields()
	return func() {
		for range 4 {
			yield()
		}
	}
}

// orderedJournal begins each commit after the changes of its instant. So which changes share an
// fsync does not depend on the fastest goroutine.
type orderedJournal struct {
	engine.Journal
	goLast func()
}

func (j orderedJournal) Commit(seq simba.Seq) error {
	if seq > j.Committed() {
		j.goLast()
	}
	return j.Journal.Commit(seq)
}

// dial opens a connection. The server must be up.
func (w *world) dial(owner string, proto int) *wire {
	near, far := net.Pipe()
	w.judge.wireIDs++
	k := &wire{w: w, id: w.judge.wireIDs, life: w.life, owner: owner, nc: near, watched: map[*mutex]int{}}
	s := w.server
	w.wiring.Go(func() { s.ServeConn(&serverEnd{Conn: far, wire: k}) })
	w.wiring.Go(k.read)
	w.wires = append(w.wires, k)
	if proto == 3 {
		w.send(k, &request{kind: reqHello})
	}
	return k
}

// hangUp closes a connection on the client's side.
func (w *world) hangUp(k *wire) {
	k.hungUp = true
	k.resume()
	k.nc.Close()
}

// stop stops the server as SIGTERM does: waiters get their replies, and all changes are written. It
// returns the files.
func (w *world) stop() *vfs.MemFS {
	w.logf(nil, w.now(), "an orderly stop")
	w.stopping, w.orderly = true, true
	for _, mx := range w.model.mutexes {
		mx.queue, mx.reserved = nil, nil // each waiter gets the error UNBLOCKED
	}
	for _, k := range w.wires {
		if k.halfOf != nil {
			k.halfOf = nil
		}
		k.resume()
	}
	ctx, cancel := context.WithTimeout(context.Background(), need.Hang)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		w.violate(ruleLiveness, "the server does not stop in an orderly way: %v", err)
	}
	// engine.Stop waits for the disk under a lock, and fake time stands still meanwhile. So stop
	// lets the time pass before.
	w.sleep(w.durableBy(w.now()) - w.now())
	if w.fatal.Load() != 0 {
		return w.crash(w.percent()) // the disk hung longer than the store's timeout
	}
	w.engine.Stop()
	if w.store != nil {
		if err := w.store.Close(); err != nil {
			w.violate(ruleFatal, "in an orderly stop the store does not close: %v", err)
		}
	}
	w.tearDown()
	return w.disk.mem
}

// crash ends the process as kill -9 or a power cut does. It returns the files that survive, with
// the given percentage of the unsynced data.
func (w *world) crash(percent int) *vfs.MemFS {
	w.logf(nil, w.now(), "a crash that keeps %d%%", percent)
	left := w.disk.crash(percent, w.report.seed, uint64(w.life))
	w.orderly = false
	w.disk.kill()
	w.tearDown()
	return left
}

// tearDown ends all goroutines of the server's present life.
func (w *world) tearDown() {
	w.up = false
	life := w.life
	w.life = -1 // the judge ignores all later happenings
	if !w.disk.killed {
		w.disk.kill()
	}
	for _, k := range w.wires {
		k.resume()
		k.nc.Close()
	}
	if w.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), need.Hang)
		if err := w.server.Shutdown(ctx); err != nil {
			w.violate(ruleNothingLeft, "the connections of a process that has ended do not end: %v", err)
		}
		cancel()
	}
	if w.engine != nil {
		w.engine.Stop()
	}
	if w.store != nil {
		_ = w.store.Close() // if Close fails, the store closes its files in the background
	}
	w.wiring.Wait()
	w.lulls.rest()
	w.inbox.take()
	w.life = life
	w.server, w.engine, w.store, w.stopping = nil, nil, nil, false
	for _, c := range w.clients {
		c.wire, c.subscriber, c.old = nil, nil, nil
	}
}

// fixedHash returns a hash that is the same in every run.
func fixedHash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name))          // never fails
	return h.Sum64() * 0x9e3779b97f4a7c15 // the upper bits choose the shard
}
