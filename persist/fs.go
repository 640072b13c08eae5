package persist

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp/persist/journal"
)

// strictFS is Pebble's file system. An operation that fails never returns: it calls the fault's
// halt. Pebble's own reactions differ: some retry without end, and one unlocks a mutex twice.
//
// Removing a file or reserving its space may fail. That costs only space.
type strictFS struct {
	vfs.FS
	fault    *fault
	progress *progress
}

// progress follows Pebble's changes to its files.
type progress struct {
	mu      sync.Mutex // protects the fields below
	running int        // operations
	last    time.Time  // when an operation last began or ended
}

func (p *progress) begin() { p.note(1) }
func (p *progress) end()   { p.note(-1) }

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
	s.progress.begin()
	f, err := s.FS.Create(name, category)
	return s.file("create", name, f, err)
}

func (s strictFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	s.progress.begin()
	f, err := s.FS.OpenReadWrite(name, category, opts...)
	return s.file("open", name, f, err)
}

// OpenDir opens a directory, to sync it.
func (s strictFS) OpenDir(name string) (vfs.File, error) {
	s.progress.begin()
	f, err := s.FS.OpenDir(name)
	return s.file("open", name, f, err)
}

func (s strictFS) Rename(oldName, newName string) error {
	s.progress.begin()
	s.check("rename", newName, s.FS.Rename(oldName, newName))
	return nil
}

// Remove may fail: see strictFS.
func (s strictFS) Remove(name string) error {
	s.progress.begin()
	defer s.progress.end()
	return s.FS.Remove(name)
}

func (s strictFS) file(op, name string, f vfs.File, err error) (vfs.File, error) {
	s.check(op, name, err)
	return strictFile{File: f, fs: s, name: name}, nil
}

func (s strictFS) check(op, name string, err error) {
	s.progress.end()
	if err != nil {
		s.fault.halt(fmt.Errorf("%s %s: %w", op, s.PathBase(name), err))
	}
}

type strictFile struct {
	vfs.File
	fs   strictFS
	name string
}

func (f strictFile) Write(p []byte) (int, error) {
	f.fs.progress.begin()
	n, err := f.File.Write(p)
	f.fs.check("write", f.name, err)
	return n, nil
}

func (f strictFile) WriteAt(p []byte, offset int64) (int, error) {
	f.fs.progress.begin()
	n, err := f.File.WriteAt(p, offset)
	f.fs.check("write", f.name, err)
	return n, nil
}

func (f strictFile) Sync() error {
	f.fs.progress.begin()
	f.fs.check("sync", f.name, f.File.Sync())
	return nil
}

func (f strictFile) SyncData() error {
	f.fs.progress.begin()
	f.fs.check("sync", f.name, f.File.SyncData())
	return nil
}

func (f strictFile) SyncTo(length int64) (fullSync bool, err error) {
	f.fs.progress.begin()
	fullSync, err = f.File.SyncTo(length)
	f.fs.check("sync", f.name, err)
	return fullSync, nil
}
