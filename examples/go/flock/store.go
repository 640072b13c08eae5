//go:build unix

// Package flock is an example of a store for proxy.Engine: a directory on a local disk. Servers
// that use the same directory share its mutexes. The clock of the store is the machine's.
//
// Each mutex has a file. A step takes an exclusive flock of the file, reads the state, and replaces
// the file if the state changes. A crash leaves the old file or the new one, and a read without a
// flock finds one of the two.
package flock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/gob"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/backends/proxy"
)

// Store implements proxy.Store.
type Store struct{ dir *os.File }

// Open returns the store in a directory.
func Open(path string) (*Store, error) {
	dir, err := os.Open(path)
	return &Store{dir}, err
}

// Take implements proxy.Store.
func (s *Store) Take(ctx context.Context, mutex string, l *proxy.Lease) (t proxy.Taking, _ proxy.State, _ error) {
	st, err := s.step(ctx, mutex, func(st *proxy.State) bool {
		if !st.Live {
			t = proxy.Granted
			begin(st, l)
		} else if st.Owner == l.Owner {
			t = proxy.Renewed
			renew(st, l)
		}
		return t != proxy.Held
	})
	return t, st, err
}

// Renew implements proxy.Store.
func (s *Store) Renew(ctx context.Context, mutex string, l *proxy.Lease) (ok bool, _ error) {
	_, err := s.step(ctx, mutex, func(st *proxy.State) bool {
		if ok = st.Live && st.Owner == l.Owner && (l.Token == 0 || l.Token == st.Token); ok {
			renew(st, l)
		}
		return ok
	})
	return ok, err
}

// Pass implements proxy.Store.
func (s *Store) Pass(ctx context.Context, mutex string, from proxy.From, to *proxy.Lease) (_ uint64, ok bool, _ error) {
	st, err := s.step(ctx, mutex, func(st *proxy.State) bool {
		if from.Free() {
			ok = !st.Live && st.Revision == from.Revision
		} else if ok = st.Live && st.Owner == from.Owner && st.Token == from.Token && (from.Mark == 0 || from.Mark == st.Mark); ok {
			*st = proxy.State{Revision: st.Revision + 1, Now: st.Now}
		}
		if ok && to != nil {
			begin(st, to)
		}
		return ok
	})
	return st.Revision, ok, err
}

// begin begins a tenure. Its token is the revision, which each tenure increases.
func begin(st *proxy.State, l *proxy.Lease) {
	st.Revision++
	st.Owner, st.Token, l.Revision = l.Owner, st.Revision, st.Revision
	renew(st, l)
}

// renew begins both windows anew. The mark is a number that no other lease has.
func renew(st *proxy.State, l *proxy.Lease) {
	l.Token, l.Mark = st.Token, 1+rand.Int64N(1<<62)
	st.Mark, st.AcquiredAt = l.Mark, st.Now
	st.TTLAt = st.Now + l.TTL.Milliseconds()
	st.TransitionAt = st.TTLAt + l.Transition.Milliseconds()
}

// Read implements proxy.Store.
func (s *Store) Read(ctx context.Context, mutex string, settled bool) (proxy.State, error) {
	if settled {
		return s.step(ctx, mutex, func(*proxy.State) bool { return false })
	}
	r, err := read(s.path(mutex))
	return r.State, err
}

// step locks a mutex, and writes the new state if change returns true. It returns the state after
// the step.
func (s *Store) step(ctx context.Context, mutex string, change func(*proxy.State) bool) (proxy.State, error) {
	path := s.path(mutex)
	f, err := lock(ctx, path)
	if err != nil {
		return proxy.State{}, err
	}
	defer f.Close() // unlocks the mutex
	r, err := read(path)
	if err == nil && change(&r.State) {
		r.Mutex, r.Key = mutex, s.ScanKey(mutex)
		err = s.write(path, r)
	}
	return r.State, err
}

// lock opens and locks a file. It starts again if another step has replaced the file meanwhile.
func lock(ctx context.Context, path string) (*os.File, error) {
	for end := time.Now().Add(time.Second); ctx.Err() == nil && time.Now().Before(end); time.Sleep(time.Millisecond) {
		f, err := os.OpenFile(path, os.O_CREATE, 0o600)
		if err != nil {
			return nil, refused(err)
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			locked, _ := f.Stat()
			if present, err := os.Stat(path); err == nil && os.SameFile(locked, present) {
				return f, nil
			}
		}
		f.Close()
	}
	return nil, proxy.NotDone{Err: errors.New("the mutex is locked"), Locked: true}
}

// read reads a file. The state is at least as new as its Now.
func read(path string) (r proxy.Scanned, err error) {
	now := time.Now().UnixMilli()
	data, err := os.ReadFile(path)
	if len(data) > 0 { // a new file is empty
		err = gob.NewDecoder(bytes.NewReader(data)).Decode(&r)
	}
	r.Now, r.Live = now, r.TransitionAt > now
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	return r, refused(fmt.Errorf("read %s: %w", path, err))
}

// write replaces a file, and waits until the new file is durable.
func (s *Store) write(path string, r proxy.Scanned) error {
	f, err := os.Create(path + ".new")
	if err := errors.Join(err, gob.NewEncoder(f).Encode(r), f.Sync(), f.Close()); err != nil {
		return refused(err)
	}
	return errors.Join(os.Rename(f.Name(), path), s.dir.Sync())
}

func refused(err error) error { return &simba.MisconfiguredError{Engine: "flock", Err: err} }

// Scan implements proxy.Store.
func (s *Store) Scan(_ context.Context, from, to uint64, limit int) (found []proxy.Scanned, _ error) {
	paths, err := filepath.Glob(s.dir.Name() + "/*.mutex")
	for _, path := range paths { // in the order of ScanKey
		var key uint64
		if _, bad := fmt.Sscanf(filepath.Base(path), "%08x-", &key); bad == nil && from <= key && key <= to && (limit == 0 || len(found) < limit) {
			r, readErr := read(path)
			if err = errors.Join(err, readErr); r.Live {
				found = append(found, r)
			}
		}
	}
	return found, err
}

// path returns the path of a mutex's file. The file's name begins with the ScanKey.
func (s *Store) path(mutex string) string {
	return fmt.Sprintf("%s/%08x-%x.mutex", s.dir.Name(), s.ScanKey(mutex), sha256.Sum256([]byte(mutex)))
}

// ScanKey implements proxy.Store.
func (s *Store) ScanKey(mutex string) uint64 { return uint64(crc32.ChecksumIEEE([]byte(mutex))) }

// Ping implements proxy.Store.
func (s *Store) Ping(context.Context) error { return os.WriteFile(s.dir.Name()+"/ping", nil, 0o600) }

// Horizon implements proxy.Store. A step that has returned has no effect later.
func (s *Store) Horizon(t time.Time) int64 { return t.UnixMilli() + 1 }

// CheckNames implements proxy.Store.
func (s *Store) CheckNames(_, _ string) error { return nil }

// Check implements proxy.Store.
func (s *Store) Check(context.Context) ([]proxy.Fault, error) { return nil, nil }

// Start implements proxy.Store.
func (s *Store) Start(context.Context, proxy.Hooks) error { return nil }

// Watch implements proxy.Store. The store learns of no changes: see proxy.Options.Poll.
func (s *Store) Watch(string) {}

// Unwatch implements proxy.Store.
func (s *Store) Unwatch(string) {}

// Close implements proxy.Store.
func (s *Store) Close() error { return s.dir.Close() }
