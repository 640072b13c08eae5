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

// temporaryPrefix begins the name of a file that is not complete. It makes the file one that isLeftover
// accepts.
const temporaryPrefix = "."

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
		return replaceFile(fsys, dir, signName, strings.NewReader(signText))
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
	case !isMember && o.replica && !isNew && !o.single:
		return ErrSingle
	case isMember || !o.replica:
		return nil
	}
	return replaceFile(o.FS, o.Dir, memberName, strings.NewReader(""))
}

// isLeftover reports whether a new directory may have the file. File systems, desktops and editors
// create such files.
func isLeftover(name string) bool { return name == "lost+found" || strings.HasPrefix(name, ".") }

// checkSign returns ErrNewer unless the sign is one of this version.
func checkSign(fsys vfs.FS, dir string) error {
	text, err := readFile(fsys, dir, signName)
	if err == nil && !strings.HasPrefix(signText+heldText, string(text)) {
		err = ErrNewer
	}
	return err
}

// signStore notes in the directory's sign that the store has been created.
func signStore(fsys vfs.FS, dir string) error {
	return replaceFile(fsys, dir, signName, strings.NewReader(signText+heldText))
}

// heldStore reports whether signStore has marked the directory.
func heldStore(fsys vfs.FS, dir string) (bool, error) {
	text, err := readFile(fsys, dir, signName)
	return bytes.Contains(text, []byte(heldText)), err
}

func readFile(fsys vfs.FS, dir, name string) ([]byte, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, name))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	return text, errors.Join(err, f.Close())
}

// replaceFile creates or replaces a file, durably. After a crash it is the old one or the new one.
func replaceFile(fsys vfs.FS, dir, name string, from io.Reader) error {
	path, temporary := fsys.PathJoin(dir, name), fsys.PathJoin(dir, temporaryPrefix+name)
	f, err := fsys.Create(temporary, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = fsys.Remove(temporary) // the error at hand says more
		return err
	}
	if err := fsys.Rename(temporary, path); err != nil {
		return err
	}
	return journal.SyncDir(fsys, dir)
}

// makeDir creates the directory and its parents, durably.
func makeDir(fsys vfs.FS, dir string) error {
	parent := fsys.PathDir(dir)
	if _, err := fsys.Stat(dir); !errors.Is(err, fs.ErrNotExist) || parent == dir {
		return err
	}
	if err := makeDir(fsys, parent); err != nil {
		return err
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return journal.SyncDir(fsys, parent)
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
