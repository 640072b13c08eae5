package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"
)

// maxSocketPath is the maximum length in bytes of a unix socket's path, without the final zero
// byte.
const maxSocketPath = len(syscall.RawSockaddrUnix{}.Path) - 1

func (c *config) checkUnixSocket(refuse func(name, format string, args ...any)) {
	switch path := c.UnixSocket; {
	case len(path) > maxSocketPath:
		refuse("unixsocket", "the path has %d bytes, at most %d are allowed", len(path), maxSocketPath)
	case strings.HasPrefix(path, "@") || strings.ContainsFunc(path, unicode.IsControl):
		refuse("unixsocket", "%q is not the path of a file", path)
	}
}

// listenUnix opens the unix socket of that path. It replaces a socket on which nobody listens. The
// listener removes the file when it is closed.
//
// Two servers that start at the same moment can both find a socket stale. The later server then
// replaces the new socket of the other. Servers of one data directory cannot do so, since each
// locks the directory before it listens.
//
// perm is the mode of the file, as of chmod; 0 leaves it to the umask. A client needs the right to
// write.
func listenUnix(path string, perm fs.FileMode) (net.Listener, error) {
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("unixsocket: %w", err)
	}
	// The kernel gives the file the mode of the socket, less the umask. So nobody can connect
	// before Chmod. Systems other than Linux refuse Fchmod on a socket.
	restrict := func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), uint32(perm)) })
	}
	config := net.ListenConfig{}
	if perm != 0 {
		config.Control = restrict
	}
	ln, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("unixsocket: %w", err)
	}
	if perm != 0 {
		if err := os.Chmod(path, perm); err != nil {
			ln.Close()
			return nil, fmt.Errorf("unixsocketperm: %w", err)
		}
	}
	return ln, nil
}

// removeStale removes a socket on which nobody listens. Its errors name the path.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	nc, err := net.Dial("unix", path)
	switch {
	case err == nil:
		nc.Close()
		return fmt.Errorf("another process listens on %s", path)
	case !errors.Is(err, syscall.ECONNREFUSED): // for example, a live server has a full backlog
		return fmt.Errorf("a process may listen on %s: %w", path, err)
	}
	return os.Remove(path)
}

// permission is the mode of a file in octal, as of chmod; 0 = that of the umask.
type permission uint32

func (v *permission) String() string { return strconv.FormatUint(uint64(*v), 8) }

func (v *permission) Set(s string) error {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return fmt.Errorf("'%s' is not an octal number from 0 to 777", s)
	}
	*v = permission(n)
	return nil
}
