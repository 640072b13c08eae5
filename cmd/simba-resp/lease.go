package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/simba-resp/simba-resp/cli"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/wrapper"
)

// The exit codes of lock and elect. Others are those of the command.
const (
	exitUnavailable = 69 // the server cannot be reached, or refuses the request; EX_UNAVAILABLE
	exitConflict    = 75 // not acquired in time; EX_TEMPFAIL
	exitLost        = 76 // lost, or not renewed in time
)

const (
	defaultTTL   = 10 * time.Second
	defaultGrace = 5 * time.Second
	// minTTL leaves time for a renewal that fails and is repeated.
	minTTL = time.Second
	// longestWindow is that of the server.
	longestWindow = 24 * time.Hour
	// renewals is how often a lease is renewed in a TTL window.
	renewals = 3
	// inUsePause is the time between two attempts with an id whose last request is still in
	// progress.
	inUsePause = 100 * time.Millisecond
)

// exitError is an error with an exit code.
type exitError struct {
	code int
	err  error // nil = the command, or the user, knows why
}

// Error implements error.
func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }

// ExitCode returns the exit code of the process.
func (e *exitError) ExitCode() int { return e.code }

// leaseFlags are the flags that lock and elect share.
type leaseFlags struct {
	id         string
	ttl, grace time.Duration
}

func (f *leaseFlags) add(cmd *cobra.Command) {
	cli.AddConnection(cmd)
	cmd.ValidArgsFunction = completeWrapped
	cmd.Flags().DurationVar(&f.ttl, "ttl", defaultTTL, "`DURATION` of the TTL window: without a renewal the command gets SIGTERM at its end")
	cmd.Flags().DurationVar(&f.grace, "grace", defaultGrace, "`DURATION` of the transition window: the command gets SIGKILL when a quarter of it is left")
	cmd.Flags().StringVar(&f.id, "id", "", "contender `ID`; no two processes may have the same (default counter:pid@host~random; for a user with a name USER:counter:pid@host~random)")
}

// completeWrapped completes the mutex, and then the command as a shell does by itself.
func completeWrapped(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return cli.CompleteMutex(cmd, args, prefix)
	}
	return nil, cobra.ShellCompDirectiveDefault
}

// check returns an error that names the flag that is not valid.
func (f *leaseFlags) check() error {
	for _, w := range []struct {
		flag            string
		value, shortest time.Duration
	}{{"--ttl", f.ttl, minTTL}, {"--grace", f.grace, wrapper.MinGrace}} {
		switch {
		case w.value < w.shortest:
			return usageError("%s is %v, which leaves no time to stop the command; use %v or more", w.flag, w.value, w.shortest)
		case w.value > longestWindow:
			return usageError("%s is %v; use %v or less", w.flag, w.value, longestWindow)
		case w.value%time.Millisecond != 0:
			return usageError("%s is %v, not a whole number of milliseconds", w.flag, w.value)
		}
	}
	return nil
}

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// wrapped is a command that runs while this process owns a mutex.
type wrapped struct {
	mutex   string
	flags   *leaseFlags
	options *redis.Options
	command wrapper.Command
	client  *client.Client
	signals <-chan os.Signal
	runner  wrapper.Runner
}

// newWrapped prepares what lock and elect do. Its errors come before any request. The caller closes
// it. The output of errors of the command must not block, since the lease runs on.
func newWrapped(cmd *cobra.Command, args []string, flags *leaseFlags) (*wrapped, error) {
	if err := argsError(cmd, args); err != nil {
		return nil, err
	}
	if err := flags.check(); err != nil {
		return nil, err
	}
	w := &wrapped{mutex: args[0], flags: flags}
	var err error
	if w.command, err = wrapper.Find(args[1:]); err != nil {
		return nil, err
	}
	if w.options, err = cli.Options(cmd); err != nil {
		return nil, err
	}
	if user := w.options.Username; flags.id == "" && user != "" && user != "default" {
		// Without a rule as:, a user may contend as its own name and what begins with that.
		flags.id = user + ":" + client.NewHostID() + "~" + client.NewID()[:8]
	}
	w.signals = wrapper.Catch()
	log := cmd.ErrOrStderr()
	logger := slog.New(slog.NewTextHandler(log, nil))
	w.client, err = client.New(redis.NewClient(w.options), client.Options{
		// A renewal that gets no reply is repeated in the same TTL window.
		Timeout: min(max(flags.ttl/renewals, time.Second), 3*time.Second),
		TTL:     flags.ttl, Transition: flags.grace, Logger: logger,
	})
	if err != nil {
		return nil, err
	}
	w.runner = wrapper.Runner{Mutex: w.mutex, Grace: flags.grace, Signals: w.signals, Say: func(format string, args ...any) {
		fmt.Fprintf(log, "simba-resp: "+format+"\n", args...)
	}}
	return w, nil
}

// argsError returns an error unless the arguments are NAME -- command.
func argsError(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return usageError("the name of the mutex is missing: %s", cmd.UseLine())
	case dash < 0:
		return usageError("write -- before the command: %s", cmd.UseLine())
	case dash > 1:
		return usageError("unexpected argument %q before --: %s", args[1], cmd.UseLine())
	case len(args) == 1:
		return usageError("the command is missing: %s", cmd.UseLine())
	}
	return nil
}

// acquire locks the mutex, and waits for it until ctx ends, or not at all with try. A signal that
// asks this process to end ends the wait, and is the error.
func (w *wrapped) acquire(ctx context.Context, try bool) (*client.Lock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		lock *client.Lock
		err  error
	}
	results := make(chan result, 1)
	lock := w.client.Lock
	if try {
		lock = w.client.TryLock
	}
	go func() {
		for {
			l, err := lock(ctx, w.mutex, client.WithID(w.flags.id), client.WithRenewal(w.flags.ttl/renewals))
			if errors.Is(err, client.ErrInUse) && ctx.Err() == nil { // by the last tenure
				time.Sleep(inUsePause)
				continue
			}
			results <- result{l, err}
			return
		}
	}()
	for {
		select {
		case sig := <-w.signals:
			code, ends := wrapper.Ends(sig)
			if !ends {
				continue
			}
			cancel()
			if r := <-results; r.lock != nil {
				_ = r.lock.Unlock(context.Background()) // else it is free when the lease ends
			}
			return nil, &exitError{code, nil}
		case r := <-results:
			return r.lock, w.explain(r.err)
		}
	}
}

// explain gives an error of the Client its exit code.
func (w *wrapped) explain(err error) error {
	var held *client.NotAcquiredError
	var reply redis.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, client.ErrUnavailable) || errors.As(err, &reply):
		return cli.Explain(w.options, err)
	case errors.As(err, &held):
		owner := "another waiter is next, or the server delays new grants"
		if !held.Owner.IsZero() {
			owner = "its owner is " + cli.Printable(held.Owner.ID)
		}
		return &exitError{exitConflict, fmt.Errorf("%s: not acquired; %s", w.mutex, owner)}
	}
	// The name or the id is not valid.
	return &exitError{exitUsage, errors.New(cli.Printable(err.Error()))}
}

// run runs the command while the mutex is locked, and unlocks it.
func (w *wrapped) run(l *client.Lock) (wrapper.Result, error) {
	result, err := w.runner.Run(w.command, l)
	switch unlocked := l.Unlock(context.Background()); {
	case errors.Is(unlocked, client.ErrLost):
		result.Lost = true
	case unlocked != nil:
		w.runner.Say("%s: the server has not confirmed the release; the mutex is free when its lease ends: %v", w.mutex, unlocked)
	}
	return result, err
}

// close waits until nothing is left at the server, if that does not take long. It does not wait for
// a server that did not reply to the failed request.
func (w *wrapped) close(failure error) {
	if !errors.Is(failure, client.ErrUnavailable) {
		_ = w.client.Close()
	}
}
