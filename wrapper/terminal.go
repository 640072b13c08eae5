package wrapper

import (
	"os/signal"

	"golang.org/x/sys/unix"
)

// backgroundJob reports whether a script has started this program with "&". A shell without job
// control then starts the program with SIGINT ignored, in the process group of the script.
var backgroundJob = signal.Ignored(unix.SIGINT)

// terminal is the controlling terminal of this process.
type terminal struct{ fd int }

// openTerminal returns the controlling terminal. It returns nil if there is none, as under cron and
// systemd, or if this program is a background job.
func openTerminal() *terminal {
	if backgroundJob {
		return nil
	}
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	return &terminal{fd}
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// foreground reports whether the process group of this process is in the foreground.
func (t *terminal) foreground() bool {
	return t.has(unix.Getpgrp())
}

// has reports whether a process group is in the foreground.
func (t *terminal) has(group int) bool {
	if t == nil {
		return false
	}
	front, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && front == group
}

// give puts a process group into the foreground. This process must ignore SIGTTOU.
func (t *terminal) give(group int) { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) }
