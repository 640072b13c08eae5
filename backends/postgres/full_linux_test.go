package postgres

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/tests/conformance"
	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// disk is a small disk that has one folder of a database.
type disk struct{ filler string }

// newDisk moves a folder of the database to a disk of its own.
func newDisk(t *testing.T, store *stores.Server, folder string, bytes int) disk {
	t.Helper()
	store.Stop()
	root, from := filepath.Join(store.Dir, "disk"), filepath.Join(store.Dir, "data", folder)
	noError(t, os.Mkdir(root, 0o755))
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, fmt.Sprintf("mode=0777,size=%d", bytes)); err != nil {
		need.Missing(t, "mount, as root: %v", err)
	}
	t.Cleanup(func() { noError(t, syscall.Unmount(root, syscall.MNT_DETACH)) })
	if out, err := osexec.Command("mv", from, root).CombinedOutput(); err != nil {
		t.Fatalf("mv: %v\n%s", err, out)
	}
	noError(t, os.Symlink(filepath.Join(root, folder), from))
	store.Start()
	return disk{filepath.Join(root, "filler")}
}

func (d disk) fill(t *testing.T) {
	t.Helper()
	f, err := os.OpenFile(d.filler, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	noError(t, err)
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
}

func (d disk) free(t *testing.T) {
	t.Helper()
	noError(t, os.Remove(d.filler))
}

// The row of a mutex that exists is updated in its page. A new mutex can need a new page, and fails
// with a clear error.
func TestOwnerRenewsOnAFullDisk(t *testing.T) {
	store := stores.Postgres(t)
	d := newDisk(t, store, "base", 40<<20)
	b := serve(t, store.Addr, nil)
	owned := take(t, b, "owned", "a", long)
	take(t, b, "passed", "a", long)
	take(t, b, "freed", "a", long)
	release(t, b, "freed", "a")
	d.fill(t)
	for _, w := range []simba.Waiter{nil, conformance.NewBlocked()} {
		var err error
		for i := 0; err == nil; i++ {
			r := request(fmt.Sprintf("new-%v-%d", w == nil, i), "b", long)
			r.Waiter = w
			_, _, err = b.Acquire(t.Context(), r)
		}
		if !isUnavailable(err) || !strings.Contains(err.Error(), "No space left on device") {
			t.Errorf("ACQUIRE of a new mutex: %v; want that there is no space left", err)
		}
	}
	renew := func(n int) (err error) {
		for i := 0; err == nil && i < n; i++ {
			var o simba.Outcome
			o, err = b.Guard(t.Context(), simba.GuardRequest{Mutex: "owned", Contender: "a", TTL: long})
			if err == nil && (o.Status != simba.StatusRenewed || o.Token != owned.Token) {
				t.Fatalf("GUARD of the owner: %+v; want renewed", o)
			}
		}
		return err
	}
	noError(t, renew(500)) // many times as many versions of the row as a page holds
	last := take(t, b, "freed", "b", long).Token
	w := block(t, b, "passed", "b", long)
	release(t, b, "passed", "a")
	if token := w.Granted(t).Token; token <= last {
		t.Errorf("the token of the waiter is %d, want more than %d", token, last)
	}

	// A long transaction keeps the old versions, so that renewals need space too.
	foreign := session(t, store)
	exec(t, foreign, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM simba_mutex")
	if err := renew(500); !isUnavailable(err) || !strings.Contains(err.Error(), "No space left on device") {
		t.Errorf("GUARD beside a long transaction: %v; want that there is no space left", err)
	}
	exec(t, foreign, "COMMIT")
	noError(t, renew(500))

	d.free(t)
	take(t, b, "new", "b", long)
}

// PostgreSQL ends if it cannot write its WAL, and starts again only if there is space.
func TestFullDiskOfTheWALLosesNothingAcknowledged(t *testing.T) {
	store := stores.Postgres(t, "-c", "max_wal_size=32MB", "-c", "min_wal_size=32MB")
	d := newDisk(t, store, "pg_wal", 80<<20)
	b := serve(t, store.Addr, nil)
	granted := []simba.Outcome{take(t, b, "m0", "a", long)}
	w := block(t, b, "m0", "b", long)
	for range 2 {
		d.fill(t)
		for {
			if len(granted)%20 == 0 { // the next commit begins another WAL file
				_, _ = stores.AskPostgres(store.Addr, "SET LOCAL synchronous_commit = off; SELECT txid_current(), pg_switch_wal()")
			}
			o, _, err := b.Acquire(t.Context(), request(fmt.Sprintf("m%d", len(granted)), "a", long))
			if err != nil {
				if !isUnavailable(err) {
					t.Errorf("ACQUIRE: %v; want that the database is unavailable", err)
				}
				break
			}
			granted = append(granted, o)
		}
		await(t, "the database ends", func() bool {
			return strings.HasSuffix(strings.TrimSpace(store.Log()), "database system is shut down")
		})
		d.free(t)
		store.Stop() // has ended
		store.Start()
		await(t, "the server uses the database again", func() bool {
			_, _, err := b.Owner(t.Context(), "m0")
			return err == nil
		})
		last := uint64(0)
		for i, o := range granted {
			if now := ownerOf(t, b, fmt.Sprintf("m%d", i)); now.Token != o.Token || o.Token <= last {
				t.Errorf("the token of m%d is %d, want %d, which is more than %d", i, now.Token, o.Token, last)
			}
			last = o.Token
		}
	}
	release(t, b, "m0", "a")
	if o := w.Granted(t); o.Token <= granted[len(granted)-1].Token {
		t.Errorf("the waiter's token is %d, want more than %d", o.Token, granted[len(granted)-1].Token)
	}
}
