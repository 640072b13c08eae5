// Command simba-resp serves distributed locks and leader election to Redis clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/cli"
)

// The exit codes. A failed store ends the process with persist.ExitCode.
const (
	exitFailed = 1  // any other failure, for example a server that cannot start
	exitUsage  = 2  // invalid flags or settings
	exitOutput = 73 // standard output cannot be written; EX_CANTCREAT
)

// repeatedSignal is the time after the first signal in which a second one counts as its copy. A
// later signal ends the process at once.
const repeatedSignal = time.Second

// logFlushTimeout is how long the process waits for the log's reader before it ends.
const logFlushTimeout = 200 * time.Millisecond

func main() {
	log := newLogBuffer(os.Stderr)
	err := run(context.Background(), os.Args[1:], os.Getenv, os.Stdout, log)
	if exit := (*cli.ExitError)(nil); errors.As(err, &exit) && exit.Interrupted {
		interrupt(log)
	}
	os.Exit(end(log, err))
}

// end writes the text of err, if there is one, and the rest of the log. It returns the exit code.
func end(log *logBuffer, err error) (code int) {
	if err != nil {
		code = exitFailed
		if coded := (interface{ ExitCode() int })(nil); errors.As(err, &coded) {
			code = coded.ExitCode()
		}
		if why := err.Error(); why != "" {
			fmt.Fprintln(log, "simba-resp:", why)
		}
	}
	log.close(logFlushTimeout)
	return code
}

// interrupt ends the process by SIGINT. So when the user types Ctrl-C, a script that runs this
// program ends too. If this program exited with code 130, bash would go on with the script.
func interrupt(log *logBuffer) {
	log.flush(logFlushTimeout)
	signal.Reset(os.Interrupt)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // another thread may handle the signal
}

// serveUntilSignal runs the server until it receives a signal to stop or a client sends SHUTDOWN.
// The signals stay caught after its return, until the process ends.
func serveUntilSignal(ctx context.Context, cfg *config, log *logBuffer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	draining, drain := context.WithCancel(ctx)
	defer drain()
	signals := make(chan os.Signal, 2)
	// A closed terminal sends SIGHUP. With TLS or under systemd, serve gives the signal another
	// meaning. A signal that this process was started to ignore, for example by nohup(1), stays
	// ignored.
	if signal.Ignored(os.Interrupt) {
		// A shell has started the server in the background, and ignores SIGQUIT for it too. Go
		// does not keep that.
		signal.Ignore(syscall.SIGQUIT)
	}
	signal.Notify(signals, slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}, signal.Ignored)...)
	// By default Go ends a process that writes to a broken pipe on standard error. The server must
	// outlive the log's reader.
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		<-signals
		drain()
		last := time.Now()
		awaitNext := func(end <-chan time.Time) {
			for {
				select {
				case <-end:
					return
				case <-signals:
					// Supervisors such as timeout(1) and make may send one signal twice.
					if time.Since(last) > repeatedSignal {
						last = time.Now()
						return
					}
				}
			}
		}
		awaitNext(time.After(cfg.Drain))
		cancel()
		awaitNext(nil)
		os.Exit(end(log, errors.New("second signal: exiting without an orderly stop")))
	}()
	return serve(ctx, draining, cfg, log)
}

// serve runs the server until ctx ends or a client sends SHUTDOWN. From the end of draining, the
// server is not ready, but it serves. If it has not started by then, it does not start.
func serve(ctx, draining context.Context, cfg *config, out *logBuffer) error {
	ctx, shutdown := context.WithCancel(ctx)
	defer shutdown()
	log := newLogs(cfg, out)
	slog.SetDefault(log.Logger) // libraries that log must not block either
	a, err := newApp(draining, cfg, log, shutdown)
	if err != nil {
		return err
	}
	reloads := make(chan os.Signal, 1)
	if cfg.TLSAddr != "" || underSystemd() {
		// From now on SIGHUP reloads the certificates and does not end the process. Between the
		// two calls it is ignored.
		signal.Ignore(syscall.SIGHUP)
		signal.Notify(reloads, syscall.SIGHUP)
	}
	failed := a.start()
	systemd := reportToSystemd(a)
	drain := draining.Done()
	for serving := true; serving; {
		select {
		case <-ctx.Done():
			serving = false
		case <-drain:
			drain, reloads = nil, nil // systemd must get no READY=1 any more
			if cfg.Drain > 0 && ctx.Err() == nil {
				log.Info("draining: not ready, but still serving", "drain", cfg.Drain)
				a.drain()
				systemd.stop()
			}
		case err = <-failed:
			serving = false
		case <-reloads:
			systemd.reload(a.reloadCertificate)
		}
	}
	log.Info("stopping")
	systemd.stop()
	// The stop needs time of its own, even if ctx has ended.
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
	defer cancel()
	// A slow reader of the log may use the rest of the timeout, except for the last tenth.
	logDeadline := time.Now().Add(cfg.ShutdownTimeout * 9 / 10)
	err = joinErrors(err, a.stop(stopCtx))
	out.flush(max(time.Until(logDeadline), logFlushTimeout))
	return err
}
