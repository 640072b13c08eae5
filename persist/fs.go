package persist

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp/persist/journal"
)

// strictFS is Pebble's file system. An operation that fails does not return its error, because
// Pebble's reactions to errors differ: some retry without end, and one unlocks a mutex twice.
// Instead it trips the fault. After that nothing changes on disk any more. Each operation blocks
// until Close lets Pebble end, and then does nothing and succeeds.
//
// Removing a file or reserving its space may fail. That costs only space.
type strictFS struct {
	vfs.FS
	fault    *fault
	progress *progress
}

// do runs an operation that changes files.
func (s strictFS) do(op, name string, run func() error) {
	if !s.fault.failed() {
		s.progress.note(1)
		err := run()
		s.progress.note(-1)
		if err == nil {
			return
		}
		s.fault.trip(fmt.Errorf("%s %s: %w", op, s.PathBase(name), err))
	}
	<-s.fault.closing
}

// open runs an operation that opens a file. If the operation does nothing, the file is one in
// memory.
func (s strictFS) open(op, name string, open func() (vfs.File, error)) (f vfs.File, err error) {
	s.do(op, name, func() (err error) {
		f, err = open()
		return err
	})
	if f == nil {
		f, err = vfs.NewMem().Create("file", vfs.WriteCategoryUnspecified)
	}
	return strictFile{File: f, fs: s, name: name}, err
}

// progress follows Pebble's changes to its files.
type progress struct {
	mu      sync.Mutex // protects the fields below
	running int        // operations
	last    time.Time  // when an operation last began or ended
}

// note counts an operation that begins, or with -1 one that ends.
func (p *progress) note(running int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running += running
	p.last = time.Now()
}

// state returns whether an operation runs, and when one last began or ended.
func (p *progress) state() (running bool, last time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running > 0, p.last
}

func (s strictFS) Unwrap() vfs.FS { return s.FS }

// Create creates a file. A marker is a file whose name names another file. Before Create creates a
// marker, it makes the other file's directory entry durable. Otherwise a power cut could leave the
// marker without that file, and Open would fail for ever (cockroachdb/pebble issue 5825; v2.1.7 has
// no fix).
func (s strictFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(s.PathBase(name), "marker.") {
		if err := journal.SyncDir(s, s.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return s.open("create", name, func() (vfs.File, error) { return s.FS.Create(name, category) })
}

func (s strictFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return s.open("open", name, func() (vfs.File, error) { return s.FS.OpenReadWrite(name, category, opts...) })
}

// OpenDir opens a directory, to sync it.
func (s strictFS) OpenDir(name string) (vfs.File, error) {
	return s.open("open", name, func() (vfs.File, error) { return s.FS.OpenDir(name) })
}

func (s strictFS) Rename(oldName, newName string) error {
	s.do("rename", newName, func() error { return s.FS.Rename(oldName, newName) })
	return nil
}

// Remove may fail: see strictFS.
func (s strictFS) Remove(name string) (err error) {
	s.do("remove", name, func() error {
		err = s.FS.Remove(name)
		return nil
	})
	return err
}

type strictFile struct {
	vfs.File
	fs   strictFS
	name string
}

func (f strictFile) Write(p []byte) (int, error) {
	f.fs.do("write", f.name, func() error {
		_, err := f.File.Write(p)
		return err
	})
	return len(p), nil
}

func (f strictFile) WriteAt(p []byte, offset int64) (int, error) {
	f.fs.do("write", f.name, func() error {
		_, err := f.File.WriteAt(p, offset)
		return err
	})
	return len(p), nil
}

func (f strictFile) Sync() error {
	f.fs.do("sync", f.name, f.File.Sync)
	return nil
}

func (f strictFile) SyncData() error {
	f.fs.do("sync", f.name, f.File.SyncData)
	return nil
}

func (f strictFile) SyncTo(length int64) (fullSync bool, err error) {
	f.fs.do("sync", f.name, func() (err error) {
		fullSync, err = f.File.SyncTo(length)
		return err
	})
	return fullSync, nil
}
