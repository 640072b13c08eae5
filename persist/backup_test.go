package persist

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/simba-resp/simba-resp"
)

func readAll(t testing.TB, b *Backup) []byte {
	t.Helper()
	var all []byte
	for {
		part, err := b.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(part) == 0 || len(part) > backupPart {
			t.Fatalf("Next returns %d bytes, want at most 1 MiB", len(part))
		}
		all = append(all, part...)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

func mustBackup(t testing.TB, s *Store) *Backup {
	t.Helper()
	b, err := s.Backup()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restored restores a backup with this content into a directory that has only what a file system
// puts there. It opens the store until the test ends.
func restored(t testing.TB, content []byte, o RestoreOptions) (*Restored, *Recovered) {
	t.Helper()
	fsys := vfs.NewMem()
	writeBackup(t, fsys, content)
	if err := fsys.MkdirAll("data/lost+found", 0o700); err != nil {
		t.Fatal(err)
	}
	o.FS, o.From, o.Dir = fsys, "backup", "data"
	done, err := Restore(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	at := new(clock)
	at.advance(time.Hour)
	open := testOptions(t, fsys, Always)
	open.Boot.Now = at.now
	_, r := openClosed(t, open)
	return done, r
}

func writeBackup(t testing.TB, fsys vfs.FS, content []byte) {
	t.Helper()
	f, err := fsys.Create("backup", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(bytes.Clone(content)) // with the race detector, Pebble overwrites its argument
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func namesOf(leases map[string]simba.Lease) []string { return slices.Sorted(maps.Keys(leases)) }

// While the test reads the backup, further changes fill many segments. So Pebble replaces and
// compacts the files that the backup reads.
func TestABackupHasAllChangesBeforeItAndNoLaterOne(t *testing.T) {
	for _, mode := range []Mode{Always, Async} {
		t.Run(mode.String(), func(t *testing.T) {
			s, _ := openClosed(t, testOptions(t, vfs.NewMem(), mode))
			seq := simba.Seq(0)
			next := func(ch func(simba.Seq, string) simba.Change, mutex string) {
				seq++
				s.Append(ch(seq, mutex))
			}
			for i := range 3000 {
				next(put, fmt.Sprintf("m%04d", i))
			}
			mustCommit(t, s, seq)
			next(del, "m0007")
			next(put, "last") // in Async, this change is committed without an fsync

			b := mustBackup(t, s)
			for range 5 {
				for i := range 3000 {
					next(del, fmt.Sprintf("m%04d", i))
				}
				for i := range 1000 {
					next(put, fmt.Sprintf("later%04d", i))
				}
				mustCommit(t, s, seq)
			}
			content := readAll(t, b)

			_, r := restored(t, content, RestoreOptions{RecoveryDelay: time.Hour})
			leases := leasesOf(t, r)
			_, ended := leases["m0007"]
			_, last := leases["last"]
			_, later := leases["later0001"]
			if len(leases) != 3000 || ended || !last || later {
				t.Errorf("the backup has %d leases, want 3000; has the ended lease: %v, want false; has the last lease: %v, want true; has a later lease: %v, want false",
					len(leases), ended, last, later)
			}
			if n := len(r.History); n != 3002 || r.History[n-1].Seq != abs(3002) {
				t.Errorf("the backup has %d events, want 3002", n)
			}
		})
	}
}

func TestABackupOfLargeLeasesComesInPartsOfOneMiB(t *testing.T) {
	skipUnderRace(t)
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Always))
	for i := range 3 {
		s.Append(large(simba.Seq(i+1), fmt.Sprint("m", i), 2<<20))
	}
	mustCommit(t, s, 3)
	content := readAll(t, mustBackup(t, s))
	_, r := restored(t, content, RestoreOptions{OwnersStopped: true})
	leases := leasesOf(t, r)
	if len(leases) != 3 || len(content) < 6<<20 {
		t.Fatalf("the backup has %d bytes with the leases %q, want 3 leases in 6 MiB", len(content), namesOf(leases))
	}
	for mutex, l := range leases {
		if want := large(1, mutex, 2<<20).Lease.Fields; !slices.Equal(l.Fields, want) {
			t.Errorf("the lease of %s in the backup differs from the lease in the store", mutex)
		}
	}
}

func TestOneBackupRunsAtATime(t *testing.T) {
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Always))
	first := mustBackup(t, s)
	if _, err := s.Backup(); !errors.Is(err, ErrBackupRuns) {
		t.Errorf("a second Backup returns %v, want ErrBackupRuns", err)
	}
	for range 2 {
		if err := first.Close(); err != nil {
			t.Errorf("Close of the backup: %v", err)
		}
	}
	if _, err := first.Next(); !errors.Is(err, simba.ErrStopped) {
		t.Errorf("Next after Close returns %v, want ErrStopped", err)
	}
	readAll(t, mustBackup(t, s))
}

func TestCloseOfTheStoreEndsItsBackup(t *testing.T) {
	s, _ := mustOpen(t, testOptions(t, vfs.NewMem(), Always))
	s.Append(put(1, "m"))
	b := mustBackup(t, s)
	mustClose(t, s)
	if _, err := b.Next(); !errors.Is(err, simba.ErrStopped) {
		t.Errorf("Next after Close of the store returns %v, want ErrStopped", err)
	}
	if err := b.Close(); err != nil {
		t.Errorf("Close of the backup: %v", err)
	}
	if _, err := s.Backup(); !errors.Is(err, simba.ErrStopped) {
		t.Errorf("Backup after Close of the store returns %v, want ErrStopped", err)
	}
}

// smallBackup returns a backup of one lease and three events.
func smallBackup(t testing.TB) []byte {
	s, _ := openClosed(t, testOptions(t, vfs.NewMem(), Always))
	s.Append(put(1, "a"))
	s.Append(put(2, "b"))
	s.Append(del(3, "a"))
	return readAll(t, mustBackup(t, s))
}

func TestABackupWithAnyByteChangedOrAnyEndMissingIsRefused(t *testing.T) {
	content := smallBackup(t)
	fsys := vfs.NewMem()
	refuse := func(what string, damaged []byte) {
		t.Helper()
		writeBackup(t, fsys, damaged)
		_, err := ReadBackup(fsys, "backup")
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errNoBackup) || !bytes.Contains([]byte(err.Error()), []byte("backup backup is ")) {
			t.Errorf("%s: ReadBackup returns %v, want ErrCorrupt or errNoBackup that names the backup", what, err)
		}
		o := RestoreOptions{FS: fsys, From: "backup", Dir: "data", OwnersStopped: true}
		if _, err := Restore(t.Context(), o); err == nil {
			t.Errorf("%s: Restore accepts the backup", what)
		}
		if _, err := fsys.Stat("data"); err == nil {
			t.Fatalf("%s: the refused Restore has made the directory", what)
		}
	}
	for i := range content {
		damaged := bytes.Clone(content)
		damaged[i] ^= 0x10
		refuse(fmt.Sprintf("byte %d changed", i), damaged)
		refuse(fmt.Sprintf("cut at %d", i), content[:i])
	}
	refuse("a byte more", append(bytes.Clone(content), 0))
	refuse("two backups in a row", append(bytes.Clone(content), content...))
	refuse("another file", []byte("port 6379\n"+string(make([]byte, 100))))
}

func TestABackupOfANewerFormatIsRefused(t *testing.T) {
	fsys := vfs.NewMem()
	content := smallBackup(t)
	// A row is the key, the length of the value, and the value, which begins with its version.
	row := bytes.Index(content, []byte{2, 'l', 'b'})
	for what, change := range map[string]struct {
		at      int
		version byte
	}{
		"stream": {len(backupMagic), backupFormat},
		"lease":  {row + 4, leaseVersion},
	} {
		newer := bytes.Clone(content)
		if newer[change.at] != change.version {
			t.Fatalf("%s: byte %d of the backup is not a version", what, change.at)
		}
		newer[change.at]++
		body := newer[:len(newer)-sha256.Size]
		sum := sha256.Sum256(body)
		writeBackup(t, fsys, append(body, sum[:]...))
		if _, err := ReadBackup(fsys, "backup"); !errors.Is(err, ErrNewer) {
			t.Errorf("for a newer format of the %s, ReadBackup returns %v, want ErrNewer", what, err)
		}
	}
}
