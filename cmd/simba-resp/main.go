// Command simba-resp serves distributed locks and leader election to anything
// that can talk to Redis.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const version = "0.1.0"

// The exit codes. A store that fails ends the process with persist.ExitCode.
const (
	exitFailed = 1 // could not start, or not stop in order
	exitUsage  = 2 // flags or settings that make no sense
)

// secondSignal is how long after the first signal another one means impatience.
const secondSignal = time.Second

// lastWords is how long the process waits for the log's reader when it ends.
const lastWords = 200 * time.Millisecond

func main() {
	log := newLogBuffer(os.Stderr)
	fail := func(code int, why ...any) {
		fmt.Fprintln(log, append([]any{"simba-resp:"}, why...)...)
		log.flush(lastWords)
		os.Exit(code)
	}
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	// A terminal that is closed sends SIGHUP. With TLS it has another meaning; see serve.
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// Go ends a process that writes to a broken pipe on standard error: who reads the
	// log must not take the locks along when it dies.
	signal.Ignore(syscall.SIGPIPE)
	go func() {
		<-signals
		asked := time.Now()
		cancel()
		for range signals {
			// Supervisors, timeout(1) and make among them, may deliver one wish twice.
			if time.Since(asked) > secondSignal {
				break
			}
		}
		fail(exitFailed, "a second signal: not waiting for an orderly stop")
	}()

	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, log)
	if err == nil {
		log.close(0) // serve has given the reader its time
		return
	}
	if wrong := (faults)(nil); errors.As(err, &wrong) {
		fail(exitUsage, err)
	}
	fail(exitFailed, err)
}

// run does what the command line asks for. If that is to serve, it returns when
// ctx has ended and everything is stopped.
func run(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer, log *logBuffer) error {
	inv, err := parseArgs(args)
	if err != nil {
		return err
	}
	switch {
	case inv.help:
		_, err := io.WriteString(stdout, help())
		return err
	case inv.version:
		_, err := fmt.Fprintf(stdout, "simba-resp %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
		return err
	}
	cfg, err := loadConfig(inv.flags, getenv)
	if err != nil {
		return err
	}
	if inv.check {
		if warning := cfg.tlsWarning(); warning != "" {
			fmt.Fprintln(stdout, "warning:", warning)
		}
		_, err := fmt.Fprintln(stdout, "the configuration is valid")
		return err
	}
	return serve(ctx, cfg, log)
}

// serve runs the server until ctx ends or a client sends SHUTDOWN.
func serve(ctx context.Context, cfg *config, out *logBuffer) error {
	ctx, shutdown := context.WithCancel(ctx)
	defer shutdown()
	log := newLogs(cfg, out)
	slog.SetDefault(log.Logger) // what a library logs on its own does not wait for the reader either
	a, err := newApp(ctx, cfg, log, shutdown)
	if err != nil {
		return err
	}
	hangups := make(chan os.Signal, 1)
	if cfg.TLSAddr != "" {
		// Who renews certificates sends SIGHUP: from now on it does not end the process. In
		// between it is ignored, never deadly.
		signal.Ignore(syscall.SIGHUP)
		signal.Notify(hangups, syscall.SIGHUP)
	}
	failed := a.start()
	for serving := true; serving; {
		select {
		case <-ctx.Done():
			serving = false
		case err = <-failed:
			serving = false
		case <-hangups:
			a.hangup()
		}
	}
	log.Info("stopping")
	// The context that told to stop must not cut the stop short.
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
	defer cancel()
	// A reader that does not read gets the rest of the timeout, less what the process needs to end.
	patience := time.Now().Add(cfg.ShutdownTimeout * 9 / 10)
	err = errors.Join(err, a.stop(stopCtx))
	out.flush(max(time.Until(patience), lastWords))
	return err
}
