//go:build linux

package main

import (
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is the operating system's file system, with slow syncs.
type disk struct {
	vfs.FS
	sync time.Duration // each sync takes at least this time
	// While stalled is true, each goroutine that creates a table of Pebble blocks for ever. So no
	// checkpoint ends.
	stalled *atomic.Bool
}

func (d disk) Unwrap() vfs.FS { return d.FS }

func (d disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if d.stalled.Load() && filepath.Ext(name) == ".sst" {
		select {}
	}
	return d.file(d.FS.Create(name, c))
}

func (d disk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return d.file(d.FS.OpenReadWrite(name, c, opts...))
}

func (d disk) OpenDir(name string) (vfs.File, error) { return d.file(d.FS.OpenDir(name)) }

func (d disk) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return slowFile{f, d.sync}, nil
}

type slowFile struct {
	vfs.File
	sync time.Duration
}

func (f slowFile) Sync() error {
	defer f.wait(time.Now())
	return f.File.Sync()
}

func (f slowFile) SyncData() error {
	defer f.wait(time.Now())
	return f.File.SyncData()
}

func (f slowFile) SyncTo(length int64) (fullSync bool, err error) {
	defer f.wait(time.Now())
	return f.File.SyncTo(length)
}

// wait waits until the time of a sync since began has passed. Like fdatasync, it blocks the thread
// in the kernel. time.Sleep would block only the goroutine.
func (f slowFile) wait(began time.Time) {
	for left := f.sync - time.Since(began); left > 0; left = f.sync - time.Since(began) {
		ts := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&ts, nil) // a signal may end it early, so the loop checks the time
	}
}
