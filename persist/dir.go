package persist

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/persist/journal"
)

// A directory with this file is a data directory. The file is created first of all. So the next
// start can complete one that was cut short.
const (
	signName = "SIMBA-RESP"
	signText = "This directory belongs to simba-resp. Do not change what is in it.\n"
	// heldText is added when the store has been created. From then on Open does not take an empty
	// store for a new one.
	heldText = "It holds a store.\n"
)

// claimDir checks that the directory can be used, and locks it.
func claimDir(o *Options) (*pebble.Lock, error) {
	if err := signDir(o.FS, o.Dir); err != nil {
		return nil, err
	}
	if err := checkSpace(o.FS, o.Dir, o.MinFree); err != nil {
		return nil, err
	}
	if err := checkFormat(o.FS, o.Dir); err != nil {
		return nil, err
	}
	return lockDir(o.FS, o.Dir)
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
		return nil
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

// leftovers are names that a fresh directory may have: file systems, desktops, editors and version
// control create such files there.
var leftovers = []string{
	"lost+found",              // the root of ext2, 3 and 4
	".snapshot", ".snapshots", // old states, on network storage and Btrfs
	".nfs*", ".fuse_hidden*", // a file that is removed and still open, on NFS and FUSE
	".DS_Store", "._*", // macOS
	".Trash-*", "System Volume Information", "$RECYCLE.BIN", // desktops
	"desktop.ini", "Thumbs.db", "@eaDir", // Windows, Synology
	"*~", ".*.sw?", ".#*", // editors: backups and locks
	".gitkeep", ".keep", // version control: keep an empty directory
	".gitignore",
}

func isLeftover(name string) bool {
	return slices.ContainsFunc(leftovers, func(pattern string) bool {
		ok, _ := path.Match(pattern, name) // the patterns are sound
		return ok
	})
}

// signStore notes in the directory's sign that the store has been created.
func signStore(fsys vfs.FS, dir string) error { return writeSign(fsys, dir, signText+heldText) }

// heldStore reports whether signStore was called for the directory.
func heldStore(fsys vfs.FS, dir string) (bool, error) {
	f, err := fsys.Open(fsys.PathJoin(dir, signName))
	if err != nil {
		return false, err
	}
	text, err := io.ReadAll(f)
	return bytes.Contains(text, []byte(heldText)), errors.Join(err, f.Close())
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

// checkSpace returns ErrNoSpace if less than minFree bytes are free.
func checkSpace(fsys vfs.FS, dir string, minFree uint64) error {
	usage, err := fsys.GetDiskUsage(dir)
	if errors.Is(err, vfs.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return err
	}
	if usage.AvailBytes < minFree {
		return fmt.Errorf("%w: %d MiB, it needs %d MiB", ErrNoSpace, usage.AvailBytes>>20, minFree>>20)
	}
	return nil
}

// lockDir takes the directory's lock, or returns ErrInUse.
func lockDir(fsys vfs.FS, dir string) (*pebble.Lock, error) {
	lock, err := pebble.LockDirectory(dir, fsys)
	if err == nil {
		return lock, nil
	}
	// A path error is about the file's creation. For a lock that is held, fcntl(2) returns one of
	// two numbers. Pebble has no error value for a lock that this process holds.
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
