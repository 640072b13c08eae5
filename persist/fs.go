package persist

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// strictFS is a file system on which a write that fails never returns: it is the
// fault's halt. Pebble's own ways to treat one differ from place to place: some
// retry without end, and one unlocks a mutex twice while it panics.
//
// To remove a file may fail, or to have the file system reserve space for it: that costs space only. To fill a log may not.
type strictFS struct {
	vfs.FS
	fault *fault
	log   *atomic.Pointer[string] // the path of the newest log
}

func (s strictFS) Unwrap() vfs.FS { return s.FS }

// Create makes a file. Before one of Pebble's markers, whose name points to
// another file, that one's entry in the directory is made durable: else a power
// cut may leave the marker alone, and a store that cannot be opened any more
// (cockroachdb/pebble issue 5825; v2.1.7 has no fix).
func (s strictFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(s.PathBase(name), "marker.") {
		if err := syncDir(s, s.PathDir(name)); err != nil {
			return nil, err
		}
	}
	f, err := s.FS.Create(name, category)
	if category == logCategory {
		return s.logFile("create", name, f, err)
	}
	return s.file("create", name, f, err)
}

func (s strictFS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, category, opts...)
	return s.file("open", name, f, err)
}

func (s strictFS) ReuseForWrite(oldName, newName string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := s.FS.ReuseForWrite(oldName, newName, category)
	return s.logFile("reuse", newName, f, err) // Pebble reuses nothing else
}

// OpenDir opens a directory, to sync it.
func (s strictFS) OpenDir(name string) (vfs.File, error) {
	f, err := s.FS.OpenDir(name)
	return s.file("open", name, f, err)
}

func (s strictFS) Rename(oldName, newName string) error {
	s.check("rename", newName, s.FS.Rename(oldName, newName))
	return nil
}

func (s strictFS) file(op, name string, f vfs.File, err error) (vfs.File, error) {
	s.check(op, name, err)
	return strictFile{File: f, fs: s, name: name}, nil
}

// logFile is file for a file of Pebble's log.
func (s strictFS) logFile(op, name string, f vfs.File, err error) (vfs.File, error) {
	s.check(op, name, err)
	info, err := f.Stat()
	s.check("stat", name, err)
	s.log.Store(&name)
	return &logFile{strictFile: strictFile{File: f, fs: s, name: name}, filled: info.Size()}, nil
}

func (s strictFS) check(op, name string, err error) {
	if err != nil {
		s.fault.halt(fmt.Errorf("%s %s: %w", op, s.PathBase(name), err))
	}
}

// strictFile is a file of strictFS.
type strictFile struct {
	vfs.File
	fs   strictFS
	name string
}

func (f strictFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	f.fs.check("write", f.name, err)
	return n, nil
}

func (f strictFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.File.WriteAt(p, offset)
	f.fs.check("write", f.name, err)
	return n, nil
}

func (f strictFile) Sync() error {
	f.fs.check("sync", f.name, f.File.Sync())
	return nil
}

func (f strictFile) SyncData() error {
	f.fs.check("sync", f.name, f.File.SyncData())
	return nil
}

func (f strictFile) SyncTo(length int64) (fullSync bool, err error) {
	fullSync, err = f.File.SyncTo(length)
	f.fs.check("sync", f.name, err)
	return fullSync, nil
}

const (
	// logCategory is what Pebble calls the writes to its log.
	logCategory vfs.DiskWriteCategory = "pebble-wal"
	// logAhead is by how much a log is filled at a time: for some hundred changes.
	logAhead = 64 << 10
)

var zeros [logAhead]byte

// logFile is a file of Pebble's log. It is filled with zeros ahead of what is written, so that nearly every sync finds the
// file as long as before and its blocks in place, and has the data alone to write: two thirds of the time that it takes otherwise,
// except on file systems that never write in place.
//
// Pebble takes the zeros for the end of the last log, as it takes what an earlier one has left in a file that it uses again. In an earlier
// log than the last they would be damage: but that is closed, with a mark and a sync, before there is a next one (rotateWAL), or, after
// a crash, what is in it is in tables and it is read no more before there is a next one (Open).
type logFile struct {
	strictFile
	offset int64 // of the next write
	filled int64 // the file's length
}

// Write is called by one goroutine at a time.
func (f *logFile) Write(p []byte) (int, error) {
	n, err := f.strictFile.Write(p)
	if f.offset += int64(n); f.offset > f.filled {
		m, _ := f.WriteAt(zeros[:], f.offset) // before the sync that makes p durable
		f.filled = f.offset + int64(m)
	}
	return n, err
}
