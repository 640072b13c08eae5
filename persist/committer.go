package persist

import (
	"cmp"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp"
)

const (
	// seqReserve is how far the stored floor of Seq is beyond the last change while a Store is
	// open. So a change within this reserve can be committed without an fsync. A crash skips at
	// most this many numbers.
	seqReserve = 1 << 20
	// tokenReserve is how far, in Async, the stored floor of tokens is beyond the last token while
	// a Store is open. In Always the floor is the last token.
	tokenReserve = 1 << 20
	// maxPending limits the memory of changes that need not be synced, in bytes. If the next record
	// is larger, each further change must be synced, so the next Commit writes the record.
	maxPending = 4 << 20
	// maxRecord is the largest size of a record, in bytes. Only the last transaction of a record
	// may exceed it. A disk that writes 26 MB a second makes a record of this size durable within
	// the commit timeout.
	maxRecord = 256 << 20
)

// committer decides which changes must be synced before a client may see them, and makes many of
// them durable by one write. It knows neither files nor the checkpoint: write takes its records.
//
//	         Append          Commit, flush                    write
//	changes ────────▶ next ────────────────▶ ready, current ────────▶ durable
//
// Changes collect in next. When somebody wants them to be durable, the writer's goroutine takes the
// group as current, states the floors in its record, and writes it. It ends when nobody wants the
// next group. Changes that are appended meanwhile make up that group. So the number of clients that
// share a write grows with their number and with the time of a write.
//
// Each record promises floors: the largest Seq and the largest token that the next run counts as
// used, and the longest lease that a crash may lose. A change that durable promises cover need not
// be synced: see mustSync.
//
// One goroutine at a time may call Append and AppendAll. All other methods are safe for concurrent
// use.
type committer struct {
	o         *Options
	maxRecord int // bytes; the constant, except in tests
	run       run
	fault     *fault
	write     func(record []byte) error // makes a record durable; one call at a time
	// confirm is set in a cluster. It returns nil if this server still led after the call.
	confirm func() error
	format  func() uint32 // of the next record

	committed atomic.Uint64 // the largest committed Seq; written under mu
	writer    sync.WaitGroup

	// mu protects the fields below. It is never held during I/O.
	mu       sync.Mutex
	next     *group   // the group that Append adds to
	ready    []*group // full groups, to be written before next
	current  *group   // the group that is being written; may be nil
	spare    *group   // for use as next; may be nil
	writing  bool     // a goroutine runs writeGroups
	closed   bool     // the final group was taken: nothing more will be written
	appended floors   // of the changes so far
	durable  floors   // of the last durable record
	stats    Stats
	flush    *time.Timer // writes next, in Async
}

// floors are the largest Seq, the largest token and the longest lease of the changes so far. Each
// record states floors too, which may be larger. Then they cover later changes too: see mustSync.
type floors struct {
	seq     simba.Seq
	token   uint64
	longest time.Duration // TTL + transition; used in Async
}

// run is what is the same in all records of a run.
type run struct {
	generation   uint64        // of the present boot
	inherited    time.Duration // recovery delay that earlier runs left
	recoverUntil simba.Instant // end of the recovery delay
}

// newCommitter returns a committer whose changes get numbers above the floors.
func newCommitter(o *Options, r run, f floors, fault *fault, write func(record []byte) error) *committer {
	c := &committer{
		o:         o,
		format:    func() uint32 { return RecordFormat },
		maxRecord: maxRecord,
		run:       r,
		fault:     fault,
		write:     write,
		next:      newGroup(),
		appended:  f,
	}
	c.committed.Store(uint64(f.seq))
	c.flush = stoppedTimer(c.flushNext)
	return c
}

// begin makes the first record of the run durable: its floors.
func (c *committer) begin() error {
	c.next.wanted = true
	if err := c.writeGroup(c.take()); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	return nil
}

// Append adds a change to the next group. mustSync reports whether the change is the first of its
// group that must be synced. Append does no I/O and keeps no reference to ch.Events.
func (c *committer) Append(ch simba.Change) (mustSync bool) {
	return c.AppendAll([]simba.Change{ch})
}

// AppendAll is Append for several changes. A crash keeps all of them or none.
func (c *committer) AppendAll(changes []simba.Change) (mustSync bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range changes {
		mustSync = c.appendLocked(&changes[i]) || mustSync
	}
	c.closeLargeLocked()
	c.updateCommittedLocked()
	return mustSync
}

func (c *committer) appendLocked(ch *simba.Change) (mustSync bool) {
	g := c.next
	g.add(ch, c.o.slept)
	if mustSync = g.mustSync == 0 && c.mustSync(g, ch); mustSync {
		g.mustSync = ch.Seq
	}
	if g.changes == 1 && c.o.Mode == Async {
		c.flush.Reset(c.o.SyncEvery)
	}
	c.appended.seq = ch.Seq
	c.appended.token = max(c.appended.token, ch.Token)
	if ch.Kind == simba.ChangePut {
		c.appended.token = max(c.appended.token, ch.Lease.Token)
		if windows := ch.Lease.TTL + ch.Lease.Transition; windows <= MaxRecoveryDelay {
			c.appended.longest = max(c.appended.longest, windows)
		}
	}
	return mustSync
}

// mustSync reports whether a client must not see the change, or a later one, before it is durable.
// The answer depends on the mode of durability.
//
// In Async a crash may lose a change that a client has seen. Two rules make that safe. The next run
// gives out no number that a lost change had. And the next run grants nothing new until every lease
// of a lost change has ended. So a change must be synced if the last durable record's floors do not
// cover it. A change that ends a tenure against its owner's will must be synced too.
//
// In a cluster, changes that clients are told of must be synced, too. Otherwise a client could see a
// change of a leader that does not lead any more.
func (c *committer) mustSync(g *group, ch *simba.Change) bool {
	shown := ch.Shown || ch.Kind != simba.ChangeNone
	if c.confirm != nil && shown || ch.Seq > c.durable.seq || len(g.record) > maxPending || c.closed {
		return true
	}
	if ch.Token > c.durable.token { // or the next run would give the token out again
		return true
	}
	if ch.Kind == simba.ChangeNone {
		return false
	}
	if c.o.Mode == Always || ch.Forced {
		return true
	}
	return ch.Kind == simba.ChangePut &&
		(ch.Lease.Token > c.durable.token || ch.Lease.TTL+ch.Lease.Transition > c.durable.longest)
}

func (c *committer) updateCommittedLocked() {
	first := c.next.mustSync
	for _, g := range slices.Backward(c.ready) {
		first = cmp.Or(g.mustSync, first)
	}
	if c.current != nil {
		first = cmp.Or(c.current.mustSync, first)
	}
	if first == 0 {
		first = c.appended.seq + 1
	}
	c.committed.Store(uint64(first - 1))
}

// Committed returns the largest Seq up to which every change is committed: the change is durable,
// or need not be synced. Committed costs one atomic load.
func (c *committer) Committed() simba.Seq { return simba.Seq(c.committed.Load()) }

// Commit returns nil when every change up to seq is committed. Callers whose changes are in the
// same group share its fsync. It returns simba.ErrStopped if the store has failed, or if Close was
// called before the changes were appended.
//
// In a cluster this server has also led after the call. A write that begins after the call shows
// that, too.
func (c *committer) Commit(seq simba.Seq) error {
	if c.fault.failed() {
		return simba.ErrStopped
	}
	done, later, err := c.beginCommit(seq)
	if err == nil && done != nil {
		err = c.wait(done)
	}
	if err == nil && c.confirm != nil && !later && c.confirm() != nil {
		err = simba.ErrStopped
	}
	return err
}

// beginCommit starts the write of the changes up to seq, and returns a channel that is closed when
// they are durable. later says that the write begins after the call. If the changes are committed
// already, beginCommit returns nil.
func (c *committer) beginCommit(seq simba.Seq) (done <-chan struct{}, later bool, err error) {
	if seq <= c.Committed() && c.confirm == nil {
		return nil, false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if seq == 0 && c.confirm != nil { // notices of the caller may wait for a change that it does not name
		seq = c.appended.seq
	}
	if seq <= c.Committed() {
		return nil, false, nil
	}
	if c.current != nil && seq <= c.current.last {
		return c.current.done, false, nil
	}
	for _, g := range c.ready {
		if seq <= g.last {
			return g.done, false, nil
		}
	}
	if c.closed {
		return nil, false, simba.ErrStopped
	}
	c.next.wanted = true
	c.beginWriteLocked()
	return c.next.done, true, nil
}

func (c *committer) wait(done <-chan struct{}) error {
	select {
	case <-done:
	case <-c.fault.stopped:
	}
	if c.fault.failed() {
		return simba.ErrStopped
	}
	return nil
}

// writeAll waits until all appended changes are durable. If final is true, the committer writes
// nothing after them.
func (c *committer) writeAll(final bool) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return simba.ErrStopped
	}
	if final {
		c.flush.Stop()
	}
	c.next.wanted, c.next.final = true, final
	c.beginWriteLocked()
	done := c.next.done
	c.mu.Unlock()
	return c.wait(done)
}

// abandon prevents further writes, and waits for the one that runs. The changes that were not
// written are lost.
func (c *committer) abandon() {
	c.mu.Lock()
	c.closed = true // under mu, so no write begins later: see beginWriteLocked
	c.mu.Unlock()
	c.writer.Wait()
}

// closeLargeLocked moves the next group to ready if it could grow beyond maxRecord before its next
// shrink.
func (c *committer) closeLargeLocked() {
	if c.next.limit > c.maxRecord && !c.closed {
		c.next.wanted = true
		c.ready = append(c.ready, c.next)
		c.next = newGroup()
		c.beginWriteLocked()
	}
}

func (c *committer) beginWriteLocked() {
	if !c.writing && !c.fault.failed() {
		c.writing = true
		c.writer.Go(c.writeGroups)
	}
}

func (c *committer) flushNext() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next.changes > 0 && !c.closed {
		c.next.wanted = true
		c.beginWriteLocked()
	}
}

// writeGroups writes groups until none is wanted. One goroutine at a time runs it.
func (c *committer) writeGroups() {
	for !c.fault.failed() {
		// Runnable goroutines add their changes first: an fsync of a hundred changes costs about as
		// much as one of a single change.
		runtime.Gosched()
		g := c.take()
		if g == nil {
			return
		}
		if err := c.writeGroup(g); err != nil {
			c.fault.trip(fmt.Errorf("commit: %w", OneLine{err}))
			return
		}
	}
}

// take makes the oldest wanted group the current one. It returns nil if no group is wanted.
func (c *committer) take() *group {
	c.mu.Lock()
	defer c.mu.Unlock()
	g := c.next
	switch {
	case len(c.ready) > 0:
		g, c.ready = c.ready[0], c.ready[1:]
	case !g.wanted:
		c.writing = false
		return nil
	default:
		if c.next, c.spare = c.spare, nil; c.next == nil {
			c.next = newGroup()
		}
	}
	var h head
	g.promised, h = c.promiseLocked(g.final)
	if h.first, h.last = g.first, g.last; g.changes == 0 {
		h.first, h.last = c.appended.seq, c.appended.seq
	}
	h.generation, h.base = c.run.generation, g.base
	h.format = c.format()
	h.put(g.record)
	c.closed = g.final
	c.current = g
	return g
}

// promiseLocked returns the next record's floors, and its head without the fields first, last,
// generation and base. The floors include a reserve for later changes. A final record has no
// reserve, because no change follows.
func (c *committer) promiseLocked(final bool) (floors, head) {
	f := c.appended
	if c.o.Mode == Always || final {
		f.longest = 0
	}
	if !final {
		f.seq += seqReserve
	}
	if c.o.Mode == Async && !final {
		f.token += tokenReserve
	}
	h := head{seq: f.seq, token: f.token, delay: f.longest, instant: c.o.Boot.Now(), wall: c.o.Wall().UnixMilli()}
	if c.run.inherited == 0 {
		return f, h
	}
	if left := c.run.recoverUntil.Sub(c.o.Now()); left > 0 {
		if final {
			h.delay = left
		} else {
			// The next run cannot know when this run crashed. So it inherits the whole delay.
			h.delay = max(h.delay, c.run.inherited)
		}
	}
	return f, h
}

// writeGroup writes the current group.
func (c *committer) writeGroup(g *group) error {
	start := time.Now()
	if err := c.write(g.record); err != nil {
		return err
	}
	took := time.Since(start)
	c.mu.Lock()
	c.current = nil
	c.durable = g.promised
	c.updateCommittedLocked()
	c.stats.add(g, took)
	done := g.done
	g.reset()
	c.spare = g
	c.mu.Unlock()
	close(done)
	return nil
}

// Stats returns the current figures.
func (c *committer) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// stoppedTimer returns a timer for Reset. A timer that runs would keep the memory of f, even after
// a failed Open.
func stoppedTimer(f func()) *time.Timer {
	t := time.AfterFunc(math.MaxInt64, f)
	t.Stop()
	return t
}
