package persist

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// fault records the first failure of a store, which ends the store. During Open a failure is only
// an error of Open. When Open succeeds, it arms the fault: from then on a failure is fatal.
type fault struct {
	fatal   func(error)
	stopped chan struct{} // closed at the first failure
	closing chan struct{} // closed by Close after a failure

	mu    sync.Mutex // protects the fields below
	err   error      // the first failure
	armed bool
}

func newFault(fatal func(error)) *fault {
	return &fault{fatal: fatal, stopped: make(chan struct{}), closing: make(chan struct{})}
}

// start runs do in a goroutine. The channel is closed when do has returned.
func start(do func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		do()
		close(done)
	}()
	return done
}

// guard runs do in a goroutine. It returns the cause if f trips meanwhile: then do may never end.
func (f *fault) guard(do func()) error {
	select {
	case <-start(do):
		return nil
	case <-f.stopped:
		return f.cause()
	}
}

// arm makes failures fatal from now on. It returns an earlier failure.
func (f *fault) arm() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = f.err == nil
	return f.err
}

// trip records the first failure, and calls fatal if f is armed.
func (f *fault) trip(err error) {
	f.mu.Lock()
	first := f.err == nil
	if first {
		f.err = err
		close(f.stopped)
	}
	armed := f.armed
	f.mu.Unlock()
	if first && armed {
		f.fatal(err)
	}
}

func (f *fault) isArmed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.armed
}

func (f *fault) cause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// halt trips f, and returns when Close is called: until then the goroutine that met the failure must
// do nothing more.
func (f *fault) halt(err error) {
	f.trip(err)
	<-f.closing
}

func (f *fault) failed() bool { return isClosed(f.stopped) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// listener reports failed reads of Pebble's own goroutines. strictFS handles failed writes. While
// Open runs, listener reports nothing: Open reads the same files, and returns its own errors.
func (f *fault) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) {
			if f.isArmed() {
				f.halt(fmt.Errorf("flush or compaction: %w", pebbleError(err)))
			}
		},
		// By default Pebble would exit here. The goroutine that read the data gets an error too.
		DataCorruption: func(pebble.DataCorruptionInfo) {},
	}
}

// pebbleLogger is Pebble's logger. Pebble expects Fatalf to end the process; here Fatalf halts the
// goroutine, as strictFS does.
type pebbleLogger struct {
	*slog.Logger
	fault *fault
}

func (l pebbleLogger) Infof(format string, args ...any)  { l.log(slog.LevelDebug, format, args) }
func (l pebbleLogger) Errorf(format string, args ...any) { l.log(slog.LevelError, format, args) }

func (l pebbleLogger) Fatalf(format string, args ...any) {
	l.fault.halt(OneLine{fmt.Errorf(format, args...)})
}

func (l pebbleLogger) log(level slog.Level, format string, args []any) {
	if l.Enabled(context.Background(), level) {
		l.Log(context.Background(), level, "pebble", "message", fmt.Sprintf(format, args...))
	}
}
