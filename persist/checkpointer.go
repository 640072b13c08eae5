package persist

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simba-resp/simba-resp/persist/journal"
)

// maxBehind limits the bytes of the full segments that are not in the checkpoint, in units of a
// segment's size. While there are more bytes, the writer waits. So the journal has at most two full
// segments, one that is being written, and a spare.
const maxBehind = 1

// computePatience bounds the time between two operations of a checkpoint, in units of
// Options.CommitTimeout. In that time a checkpoint reads and sorts at most 256 MiB of records.
const computePatience = 6

// checkpointer lets the checkpoint follow the journal: during Open, for a Backup and for a new leader up
// to the last record, and in the background whenever a segment is full. The writer of records waits
// for it only if the checkpoint is far behind.
type checkpointer struct {
	journal  *journal.Journal
	fault    *fault
	progress *progress // shows whether Pebble's changes to its files go on
	step     int64     // bytes of records in one step of the checkpoint: a segment's size
	timeout  time.Duration

	final func() uint64 // index of the last record that the checkpoint may have
	full  chan struct{} // has a value when a segment has become full
	moved chan struct{} // has a value when the checkpoint has advanced
	taken atomic.Uint64 // index of the last record that the checkpoint has durably

	// mu protects checkpoint. It is held while the checkpoint advances, is read, or is replaced, and while a
	// backup begins. Neither the engine nor a commit waits for it.
	mu         sync.Mutex
	checkpoint *checkpoint
}

func newCheckpointer(o *Options, j *journal.Journal, c *checkpoint, f *fault, p *progress) *checkpointer {
	k := &checkpointer{
		journal:    j,
		fault:      f,
		progress:   p,
		step:       o.SegmentSize,
		timeout:    o.CommitTimeout,
		final:      j.Durable,
		full:       make(chan struct{}, 1),
		moved:      make(chan struct{}, 1),
		checkpoint: c,
	}
	k.taken.Store(c.meta.Index)
	return k
}

// advanced brings the checkpoint up to a record, and then calls do. The store ends if the
// checkpoint cannot advance, but not if do returns an error. If the store has failed, advanced
// returns the cause.
func (k *checkpointer) advanced(last uint64, do func(*checkpoint) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.fault.cause(); err != nil {
		return err // the checkpoint may have records that it lacks on disk: see stepLocked
	}
	if err := k.advanceLocked(last); err != nil {
		k.fault.trip(fmt.Errorf("checkpoint: %w", OneLine{err}))
		return err
	}
	return do(k.checkpoint)
}

// advanceLocked brings the checkpoint up to a record. Open may call it without mu.
func (k *checkpointer) advanceLocked(last uint64) error {
	for k.checkpoint.meta.Index < last {
		if err := k.stepLocked(last); err != nil {
			return err
		}
		k.taken.Store(k.checkpoint.meta.Index)
		notify(k.moved)
	}
	return nil
}

// stepLocked adds about step bytes of the next records, up to the index last, and makes them
// durable. It first releases the segments that earlier calls have added. Until the release, a
// program that has copied Pebble's files still finds these segments in the journal.
func (k *checkpointer) stepLocked(last uint64) error {
	c := k.checkpoint
	if err := k.journal.Release(c.meta.Index); err != nil {
		return err
	}
	for r, err := range k.journal.Records(c.meta.Index, last) {
		if err != nil {
			return journalError(err)
		}
		if err := c.add(r.Index, r.Payload); err != nil {
			return recordError(r.Index, err)
		}
		if c.size >= k.step {
			break
		}
	}
	if err := c.write(); err != nil {
		return pebbleError(err)
	}
	return k.fault.cause() // after a failure Pebble may have written nothing: see strictFS
}

// follow advances the checkpoint whenever a segment is full, until ending is closed or the store
// has failed.
func (k *checkpointer) follow(ending <-chan struct{}) {
	for {
		select {
		case <-ending:
			return
		case <-k.fault.stopped:
			return
		case <-k.full:
		}
		if isClosed(ending) || k.advanced(min(k.journal.FullIndex(), k.final()), func(*checkpoint) error { return nil }) != nil {
			return
		}
	}
}

// behind returns the bytes of the full segments that are not in the checkpoint, but may be as a whole.
// A segment whose last records are not final does not count: the checkpoint can never take it, if
// the records that make them final wait for room.
func (k *checkpointer) behind() int64 { return k.journal.Behind(k.taken.Load(), k.final()) }

// notifyFull wakes follow if there is a full segment that is not in the checkpoint.
func (k *checkpointer) notifyFull() {
	if k.behind() > 0 {
		notify(k.full)
	}
}

// awaitRoom waits while behind exceeds maxBehind.
func (k *checkpointer) awaitRoom() error {
	for k.behind() > maxBehind*k.step {
		if err := k.await(k.moved); err != nil {
			return err
		}
	}
	return nil
}

// await waits until done receives a value or is closed. It fails if one operation of Pebble's takes
// k.timeout, because then the disk hangs. It also fails if Pebble begins no operation for
// computePatience times k.timeout. A checkpoint that is slow but goes on may take any time.
func (k *checkpointer) await(done <-chan struct{}) error {
	since := time.Now()
	ticker := time.NewTicker(k.timeout / 10)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return nil
		case <-k.fault.stopped:
			return k.fault.cause()
		case <-ticker.C:
		}
		running, last := k.progress.state()
		if last.After(since) {
			since = last
		}
		patience := k.timeout
		if !running {
			patience *= computePatience
		}
		if time.Since(since) >= patience {
			return fmt.Errorf("%w: %v", errCheckpointTimeout, patience)
		}
	}
}

// notify puts a value into a channel of capacity 1, unless the channel is full.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
