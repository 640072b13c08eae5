package journal

import (
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

type op struct {
	kind string // open, remove, rename, mkdir, write, sync
	path string
	size int // bytes of a write
}

// trapFS is a file system that calls a hook before each operation that changes it. If the hook
// returns an error, the operation returns the error. A write then still writes as many bytes as the
// hook says.
type trapFS struct {
	vfs.FS
	hook    func(op) (part int, err error)
	renamed *sync.Map // new paths of renamed files, by old path
}

func newTrapFS(inner vfs.FS, hook func(op) (part int, err error)) trapFS {
	return trapFS{inner, hook, new(sync.Map)}
}

func (t trapFS) Unwrap() vfs.FS { return t.FS }

func (t trapFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if _, err := t.hook(op{kind: "open", path: name}); err != nil {
		return nil, err
	}
	f, err := t.FS.OpenReadWrite(name, c, opts...)
	if err != nil {
		return nil, err
	}
	t.renamed.Delete(name) // name is a new file now
	return trapFile{f, t, name}, nil
}

func (t trapFS) OpenDir(name string) (vfs.File, error) {
	f, err := t.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return trapFile{f, t, name}, nil
}

func (t trapFS) Remove(name string) error {
	if _, err := t.hook(op{kind: "remove", path: name}); err != nil {
		return err
	}
	return t.FS.Remove(name)
}

func (t trapFS) Rename(from, to string) error {
	if _, err := t.hook(op{kind: "rename", path: from}); err != nil {
		return err
	}
	if err := t.FS.Rename(from, to); err != nil {
		return err
	}
	t.renamed.Store(from, to)
	return nil
}

func (t trapFS) MkdirAll(name string, perm os.FileMode) error {
	if _, err := t.hook(op{kind: "mkdir", path: name}); err != nil {
		return err
	}
	return t.FS.MkdirAll(name, perm)
}

type trapFile struct {
	vfs.File
	trap trapFS
	path string
}

// name returns the present path of the file, which may have been renamed while it was open.
func (f trapFile) name() string {
	if to, ok := f.trap.renamed.Load(f.path); ok {
		return to.(string)
	}
	return f.path
}

func (f trapFile) WriteAt(p []byte, offset int64) (int, error) {
	n, err := f.trap.hook(op{kind: "write", path: f.name(), size: len(p)})
	if err != nil || n < len(p) {
		if n > 0 {
			_, _ = f.File.WriteAt(p[:n], offset)
		}
		return n, err
	}
	return f.File.WriteAt(p, offset)
}

func (f trapFile) sync(do func() error) error {
	if _, err := f.trap.hook(op{kind: "sync", path: f.name()}); err != nil {
		return err
	}
	return do()
}

func (f trapFile) Sync() error     { return f.sync(f.File.Sync) }
func (f trapFile) SyncData() error { return f.sync(f.File.SyncData) }
