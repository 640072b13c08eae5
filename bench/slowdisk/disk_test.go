//go:build linux

package main

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestASyncTakesAtLeastAsLongAsAsked(t *testing.T) {
	const long = 20 * time.Millisecond
	d := disk{FS: vfs.NewMem(), sync: long, stalled: new(atomic.Bool)}
	f, err := d.Create("file", "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dir, err := d.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for name, sync := range map[string]func() error{
		"Sync": f.Sync, "SyncData": f.SyncData, "Sync of a directory": dir.Sync,
		"SyncTo": func() error { _, err := f.SyncTo(0); return err },
	} {
		began := time.Now()
		if err := sync(); err != nil {
			t.Errorf("%s returns %v, want nil", name, err)
		}
		if took := time.Since(began); took < long {
			t.Errorf("%s takes %v, want at least %v", name, took, long)
		}
	}
}
