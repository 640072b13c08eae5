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
	// stopping are the signals that stop a process, except SIGSTOP, which a process cannot catch.
	stopping = []os.Signal{unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU}
	// others are the other signals that the command gets when the wrapper gets them.
	others = []os.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM}
)

// Catch returns a channel with the signals for the command. SIGHUP and SIGINT stay ignored if this
// process was started so, as by nohup(1). Go does not tell this for other signals; ignorePipe says
// it for SIGPIPE.
func Catch(ignorePipe bool) <-chan os.Signal {
	signals := make(chan os.Signal, 64)
	for _, sig := range slices.Concat(ending, others) {
		if !signal.Ignored(sig) {
			signal.Notify(signals, sig)
		}
	}
	// By default Go ends a process that writes to a broken pipe on standard error, and the command
	// would die with it. So Catch catches SIGPIPE. If it ignores the signal, the command inherits
	// that.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	if ignorePipe {
		signal.Ignore(unix.SIGPIPE)
	}
	return signals
}

// stops gets the signals of stopping while a command runs.
var stops = make(chan os.Signal, 64)

// catchStops sends the signals of stopping to stops until the caller calls restore. A signal that
// this process was started to ignore stays ignored.
func catchStops() (restore func()) {
	var caught []os.Signal
	for _, sig := range stopping {
		if !ignored(sig.(unix.Signal)) {
			caught = append(caught, sig)
			signal.Notify(stops, sig)
		}
	}
	return func() {
		for _, sig := range caught {
			signal.Ignore(sig) // package signal cannot restore the default action of these signals
			setDefault(sig.(unix.Signal))
		}
		for len(stops) > 0 {
			<-stops
		}
	}
}

// Ends reports whether a signal asks a process to end. If so, it returns the exit code of a process
// that the signal has ended.
func Ends(sig os.Signal) (code int, ends bool) {
	s, ok := sig.(syscall.Signal)
	return signalCode(s), ok && slices.Contains(ending, sig)
}
