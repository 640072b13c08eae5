package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// prepare creates the folder for data. It returns a description of the disk, and the absolute path,
// since servers may run in another folder.
func prepare(dir string) (path, disk string, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	if path, err = filepath.Abs(dir); err != nil {
		return "", "", err
	}
	kind, err := fileSystem(path)
	if err != nil {
		return "", "", err
	}
	sync, err := syncTime(path)
	if err != nil {
		return "", "", err
	}
	return path, fmt.Sprintf("%s, where a write of 300 bytes with its `fdatasync` takes %.3f ms (p50)", kind, inMS(sync)), nil
}

// fileSystem returns the type of the file system with the path, such as "ext4" or "tmpfs".
func fileSystem(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	mounts, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer mounts.Close()
	return mountedAt(mounts, path)
}

// mountedAt returns the type of the file system with the path. mountinfo is the text of
// /proc/<pid>/mountinfo, see proc_pid_mountinfo(5).
func mountedAt(mountinfo io.Reader, path string) (kind string, err error) {
	longest := -1
	lines := bufio.NewScanner(mountinfo)
	for lines.Scan() {
		mount, device, ok := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(mount), strings.Fields(device)
		if !ok || len(fields) < 5 || len(rest) == 0 {
			continue
		}
		point := fields[4]
		below := point == "/" || path == point || strings.HasPrefix(path, point+"/")
		if below && len(point) >= longest { // of two mounts at one point, the later hides the other
			longest, kind = len(point), rest[0]
		}
	}
	if kind == "" {
		return "", errors.Join(errors.New("no file system has "+path), lines.Err())
	}
	return kind, lines.Err()
}

// syncTime returns the median time to overwrite 300 bytes of a file, and to call fdatasync. A
// commit of a single client cannot be faster.
func syncTime(dir string) (time.Duration, error) {
	f, err := os.CreateTemp(dir, "bench-sync-")
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const length, times = 300, 1000
	record := make([]byte, length)
	if _, err := f.Write(make([]byte, length*times)); err != nil {
		return 0, err
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	var took simbatest.Latencies
	for i := range times {
		began := time.Now()
		if _, err := f.WriteAt(record, int64(i)*length); err != nil {
			return 0, err
		}
		if err := syscall.Fdatasync(int(f.Fd())); err != nil {
			return 0, err
		}
		took = append(took, time.Since(began))
	}
	return took.Quantile(0.5), nil
}
