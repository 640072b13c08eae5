package persist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/persist/journal"
)

// A directory with the file signName, its sign, is a data directory. Open creates this file first.
// So the next start can complete a directory that a crash left incomplete.
const (
	signName = "SIMBA-RESP"
	signText = "simba-resp data directory, format 1. Do not change what is in it.\n"
	// heldText is added when the store has been created. From then on, Open refuses an empty store.
	heldText = "It holds a store.\n"
)

// minFree is how many bytes must be free at the start. That is enough for the journal's four files
// (64 MiB) and a checkpoint of three segments (48 MiB).
const minFree = 128 << 20

// memberName is the file that a directory of a cluster's member has.
const memberName = "MEMBER"

func claimDir(o *Options) (*pebble.Lock, error) {
	if err := signDir(o.FS, o.Dir); err != nil {
		return nil, err
	}
	if err := checkSpace(o.FS, o.Dir, minFree); err != nil {
		return nil, err
	}
	if err := checkFormat(o.FS, o.Dir); err != nil {
		return nil, err
	}
	lock, err := lockDir(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	if err := claimMember(o); err != nil {
		_ = lock.Close() // the error at hand says more
		return nil, err
	}
	return lock, nil
}

// signDir creates the directory if it does not exist, and signs it if it is empty.
func signDir(fsys vfs.FS, dir string) error {
	if err := makeDir(fsys, dir); err != nil {
		return err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	if slices.Contains(names, signName) {
		return checkSign(fsys, dir)
	}
	others := slices.DeleteFunc(names, isLeftover)
	slices.Sort(others)
	switch len(others) {
	case 0:
		return writeSign(fsys, dir, signText)
	case 1:
		return fmt.Errorf("%w: it has %q", ErrForeign, others[0])
	default:
		return fmt.Errorf("%w: it has %q and %d more", ErrForeign, others[0], len(others)-1)
	}
}

// claimMember returns an error if a single server opens the directory of a cluster's member, or a
// member opens that of a single server. It creates an empty file MEMBER for a new member, before all
// other files. So after a crash, too, the other files are those of a member if there is one.
func claimMember(o *Options) error {
	names, err := o.FS.List(o.Dir)
	isMember := slices.Contains(names, memberName)
	isNew := !slices.ContainsFunc(names, func(name string) bool {
		return name != signName && name != lockName && !isLeftover(name)
	})
	switch {
	case err != nil:
		return err
	case isMember && !o.replica:
		return ErrMember
	case !isMember && o.replica && !isNew && !o.Single:
		return ErrSingle
	case !o.replica:
		return nil
	}
	f, err := o.FS.OpenReadWrite(o.FS.PathJoin(o.Dir, memberName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	return journal.SyncDir(o.FS, o.Dir)
}

// isLeftover reports whether a new directory may have the file. File systems, desktops and editors
// create such files.
func isLeftover(name string) bool { return name == "lost+found" || strings.HasPrefix(name, ".") }

// checkSign returns ErrUnreleased if the sign is that of a build before the first release. A crash
// may have cut the sign short.
func checkSign(fsys vfs.FS, dir string) error {
	text, err := readSign(fsys, dir)
	if err == nil && !strings.HasPrefix(signText+heldText, string(text)) {
		err = ErrUnreleased
	}
	return err
}

// signStore notes in the directory's sign that the store has been created.
func signStore(fsys vfs.FS, dir string) error { return writeSign(fsys, dir, signText+heldText) }

// heldStore reports whether signStore has marked the directory.
func heldStore(fsys vfs.FS, dir string) (bool, error) {
	text, err := readSign(fsys, dir)
	return bytes.Contains(text, []byte(heldText)), err
}

func readSign(fsys vfs.FS, dir string) ([]byte, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, signName))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	return text, errors.Join(err, f.Close())
}

func writeSign(fsys vfs.FS, dir, text string) error {
	f, err := fsys.Create(fsys.PathJoin(dir, signName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return journal.SyncDir(fsys, dir)
}

// makeDir creates the directory and its parents, durably.
func makeDir(fsys vfs.FS, dir string) error {
	var parents []string
	for d := dir; ; d = fsys.PathDir(d) {
		_, err := fsys.Stat(d)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || fsys.PathDir(d) == d {
			return err
		}
		parents = append(parents, fsys.PathDir(d))
	}
	if len(parents) == 0 {
		return nil
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, d := range parents {
		if err := journal.SyncDir(fsys, d); err != nil {
			return err
		}
	}
	return nil
}

func checkSpace(fsys vfs.FS, dir string, need uint64) error {
	usage, err := fsys.GetDiskUsage(dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if usage.AvailBytes < need {
		return fmt.Errorf("%w: %d MiB, it needs %d MiB", ErrNoSpace, usage.AvailBytes>>20, need>>20)
	}
	return nil
}

func lockDir(fsys vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, fsys)
	if err == nil {
		return lock, nil
	}
	// A path error comes from the creation of the file. If another process holds the lock, fcntl(2)
	// returns EAGAIN or EACCES. If this process holds it, Pebble's error has no value or type.
	var path *fs.PathError
	if !errors.As(err, &path) && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) ||
		strings.Contains(err.Error(), "held by current process")) {
		return nil, ErrInUse
	}
	return nil, err
}

// checkFormat returns ErrNewer if this version of Pebble does not know the directory's format.
// Pebble's own error for that has no value or type.
func checkFormat(fsys vfs.FS, dir string) error {
	value, err := atomicfs.ReadMarker(fsys, dir, "format-version")
	if err != nil || value == "" {
		return err
	}
	format, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return fmt.Errorf("%w: the format of the store is %q", ErrCorrupt, value)
	}
	if newest := uint64(pebble.FormatNewest); format > newest {
		return fmt.Errorf("%w (%w)", ErrNewer, &versionError{"store format", format, newest})
	}
	return nil
}
