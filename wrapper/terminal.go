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
// systemd.
func openTerminal() *terminal {
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

// front returns the process group in the foreground, or 0 without a terminal.
func (t *terminal) front() int {
	if t == nil {
		return 0
	}
	front, _ := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP) // 0 if the terminal was closed
	return front
}

// foreground reports whether the process group of this process is in the foreground.
func (t *terminal) foreground() bool { return t.front() == unix.Getpgrp() }

// give puts a process group into the foreground. For a process in the background, the terminal
// answers with SIGTTOU. If this process caught the signal, the kernel would repeat the call for
// ever.
func (t *terminal) give(group int) {
	withoutSIGTTOU(func() { _ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) })
}
