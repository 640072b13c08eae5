package simulation

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

var errBroken = errors.New("broken disk")

type fault uint8

const (
	sound fault = iota
	failingSyncs
	failingWrites
	full
)

// disk is a file system in memory. It can be slow, hang or fail, and a crash loses unsynced data.
//
// Every fsync returns at the next multiple of a period. So the instant depends on the time alone,
// and not on the changes that share the fsync.
type disk struct {
	vfs.FS // the same as mem
	mem    *vfs.MemFS
	start  time.Time     // the zero of the simulation's time
	dead   chan struct{} // closed by kill; afterwards operations take no time
	// beforeFailure returns after the replies of its instant, so that no reply races with a failure.
	beforeFailure func()
	// waits reports whether the caller's fsync takes time; nil = each does.
	waits func() bool

	mu     sync.Mutex // protects the fields below
	period time.Duration
	calm   bool // true while the process starts: operations take no time and have no fault
	hangs  []span
	fault  fault
	since  time.Duration // when fault was set
	failed time.Duration // when an operation first failed; 0 = never
	killed bool
}

// span is an interval of the simulation's time.
type span struct{ from, until time.Duration }

func newDisk(mem *vfs.MemFS, start time.Time, period time.Duration) *disk {
	return &disk{FS: mem, mem: mem, start: start, period: period, calm: true, dead: make(chan struct{})}
}

func (d *disk) now() time.Duration { return time.Since(d.start) }

// syncedBy returns when an fsync that begins at t returns, if the disk does not hang again.
func (d *disk) syncedBy(t time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.syncedByLocked(t)
}

func (d *disk) syncedByLocked(t time.Duration) time.Duration {
	x := t
	if d.period > 0 {
		x = (t + d.period - 1) / d.period * d.period
	}
	for _, h := range d.hangs {
		if h.from <= x && x < h.until {
			x = h.until
		}
	}
	return x
}

// hang blocks every fsync from now on for about the given time.
func (d *disk) hang(length time.Duration) span {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := span{d.now(), d.now() + length}
	if p := d.period; p > 0 {
		h.until = (h.until + p - 1) / p * p
	}
	d.hangs = append(d.hangs, h)
	return h
}

// clearHangs ends each hang now.
func (d *disk) clearHangs() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range d.hangs {
		d.hangs[i].until = min(d.hangs[i].until, d.now())
	}
}

func (d *disk) hanging() bool {
	t := d.now()
	return d.syncedBy(t) > t+time.Second
}

// hangsAt reports whether no fsync returned at t.
func (d *disk) hangsAt(t time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.hangs, func(h span) bool { return h.from <= t && t <= h.until })
}

func (d *disk) fail(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault, d.since = f, d.now()
}

func (d *disk) isCalm() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.calm
}

func (d *disk) setCalm(calm bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calm = calm
}

// faultSince returns the disk's fault, when it was set, and when an operation first failed.
func (d *disk) faultSince() (f fault, since, met time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault, d.since, d.failed
}

// mayEnd reports whether the disk had a fault that may end the process.
func (d *disk) mayEnd() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var hang span
	for _, h := range d.hangs { // in the order of from
		if h.from > hang.until {
			hang.from = h.from
		}
		if hang.until = max(hang.until, h.until); hang.until-hang.from > 9*time.Second {
			return true
		}
	}
	return d.failed != 0
}

// kill ends the process. Every running operation returns.
func (d *disk) kill() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.killed {
		close(d.dead)
	}
	d.killed, d.fault = true, sound
}

// await blocks as long as an fsync that begins now.
func (d *disk) await() {
	if d.waits != nil && !d.waits() {
		return
	}
	began := d.now()
	for {
		d.mu.Lock()
		due := d.syncedByLocked(began)
		free := d.calm || d.killed
		d.mu.Unlock()
		wait := due - d.now()
		if free || wait <= 0 {
			return
		}
		if d.waits != nil { // clearHangs may end the wait
			wait = min(wait, 200*time.Millisecond)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-d.dead:
			timer.Stop()
			return
		}
	}
}

// verdict returns the error of an operation under the present fault; nil = the operation succeeds.
func (d *disk) verdict(sync bool) error {
	err := d.failure(sync)
	if err != nil && d.beforeFailure != nil {
		d.beforeFailure()
		if err = d.failure(sync); err == nil { // the process has ended
			return nil
		}
	}
	return err
}

func (d *disk) failure(sync bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	switch {
	case d.calm || d.killed:
	case d.fault == failingSyncs && sync, d.fault == failingWrites && !sync:
		err = errBroken
	case d.fault == full && !sync:
		err = fmt.Errorf("%w: %w", errBroken, syscall.ENOSPC)
	}
	if err != nil && d.failed == 0 {
		d.failed = d.now()
	}
	return err
}

func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return d.file(f, err, d.verdict(false))
}

func (d *disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	return d.file(f, err, nil)
}

func (d *disk) ReuseForWrite(oldName, newName string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(oldName, newName, c)
	return d.file(f, err, d.verdict(false))
}

func (d *disk) OpenDir(name string) (vfs.File, error) {
	f, err := d.FS.OpenDir(name)
	return d.file(f, err, nil)
}

func (d *disk) file(f vfs.File, err, verdict error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	if verdict != nil {
		return nil, verdict
	}
	return diskFile{f, d}, nil
}

func (d *disk) Unwrap() vfs.FS { return d.FS }

type diskFile struct {
	vfs.File
	disk *disk
}

func (f diskFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, errors.Join(err, f.disk.verdict(false))
}

func (f diskFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, errors.Join(err, f.disk.verdict(false))
}

func (f diskFile) Sync() error { return f.sync(f.File.Sync) }

func (f diskFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f diskFile) SyncTo(length int64) (fullSync bool, err error) {
	err = f.sync(func() (err error) {
		fullSync, err = f.File.SyncTo(length)
		return err
	})
	return fullSync, err
}

func (f diskFile) sync(do func() error) error {
	f.disk.await()
	if err := f.disk.verdict(true); err != nil {
		return err
	}
	return do()
}
