package wrapper

import (
	"os"
	"os/signal"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

var (
	// ending are the signals that ask a process to end.
	ending = []os.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM}
	// others are the other signals that the command gets when the wrapper gets them.
	others = []os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}
)

// Catch returns a channel with the signals for the command. A signal that this process was started
// to ignore, for example by nohup(1), stays ignored.
func Catch() <-chan os.Signal {
	signals := make(chan os.Signal, 64)
	for _, sig := range slices.Concat(ending, others) {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	// By default Go ends a process that writes to a broken pipe on standard error, and the command
	// would die with it. So Catch catches SIGPIPE. It does not ignore the signal, since the command
	// would inherit that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return signals
}

// Ends reports whether a signal asks a process to end. If so, it returns the exit code of a process
// that the signal has ended.
func Ends(sig os.Signal) (code int, ends bool) {
	s, ok := sig.(syscall.Signal)
	return signalCode(s), ok && slices.Contains(ending, sig)
}
