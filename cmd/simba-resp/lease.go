package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/cli"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/wrapper"
)

// The exit codes of lock and elect, beside exitUsage. Any other code is that of the command.
const (
	exitUnavailable = 69 // the server cannot be reached, or refuses the request; EX_UNAVAILABLE
	exitConflict    = 75 // the mutex was not acquired in time; EX_TEMPFAIL
	exitLost        = 76 // the mutex was lost, or not renewed in time
)

const (
	defaultTTL   = 10 * time.Second
	defaultGrace = 5 * time.Second
	// minTTL is the shortest --ttl. It leaves time to repeat a renewal that fails.
	minTTL = time.Second
	// longestWindow is the longest window that the server accepts.
	longestWindow = 24 * time.Hour
	// inUsePause is the pause before another attempt after client.ErrInUse.
	inUsePause = 100 * time.Millisecond
	// loginPause is the pause before another request when the server has refused the login.
	loginPause = time.Second
	// defaultGiveUp outlasts a rotation that replaces certificates and passwords one after another.
	defaultGiveUp = time.Minute
)

// endedBy returns the error for a signal that has asked this process to end.
func endedBy(sig os.Signal, code int) error {
	return &cli.ExitError{Code: code, Interrupted: sig == unix.SIGINT}
}

// leaseFlags are the flags that lock and elect share.
type leaseFlags struct {
	id               string
	ttl, grace       time.Duration
	setTTL, setGrace bool // whether the user has set them
	giveUp           time.Duration
	ignorePipe       bool
	sayWaiting       bool // say for whom this process waits
}

func (f *leaseFlags) add(cmd *cobra.Command) {
	cli.AddConnection(cmd)
	cmd.ValidArgsFunction = completeWrapped
	cmd.Flags().DurationVar(&f.ttl, "ttl", defaultTTL, "`DURATION` of the TTL window: without a renewal the command gets SIGTERM at its end")
	cmd.Flags().DurationVar(&f.grace, "grace", defaultGrace, "`DURATION` of the transition window: the command gets SIGKILL when a quarter of it is left, or 500ms")
	cmd.Flags().DurationVar(&f.giveUp, "give-up", defaultGiveUp, "exit with 69 if the server refuses the certificate, the password or the rights for this `DURATION`")
	cmd.Flags().StringVar(&f.id, "id", "", "`ID` of the contender; no two processes may have the same (default counter:pid@host~random; for a user with a name USER:counter:pid@host~random)")
	cmd.Flags().BoolVar(&f.ignorePipe, "ignore-sigpipe", false, "start the command with SIGPIPE ignored, as systemd does without this program")
}

// completeWrapped completes the mutex. For the command after it, the shell completes files.
func completeWrapped(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return cli.CompleteMutex(cmd, args, prefix)
	}
	return nil, cobra.ShellCompDirectiveDefault
}

func (f *leaseFlags) check() error {
	for _, w := range []struct {
		flag            string
		value, shortest time.Duration
	}{{"--ttl", f.ttl, minTTL}, {"--grace", f.grace, wrapper.MinGrace}} {
		switch {
		case w.value < w.shortest:
			return cli.Usagef("%s is %v, which leaves no time to stop the command; use %v or more", w.flag, w.value, w.shortest)
		case w.value > longestWindow:
			return cli.Usagef("%s is %v; use %v or less", w.flag, w.value, longestWindow)
		case w.value%time.Millisecond != 0:
			return cli.Usagef("%s is %v, not a whole number of milliseconds", w.flag, w.value)
		}
	}
	if f.giveUp < 0 {
		return cli.Usagef("--give-up is %v; use 0 or more", f.giveUp)
	}
	return nil
}

// fit shortens the windows that the user has not set, so that the lease is at most longest.
func (f *leaseFlags) fit(longest time.Duration) error {
	ttl, grace := f.ttl, f.grace
	if !f.setGrace {
		grace = longest / 3
		if f.setTTL {
			grace = longest - ttl
		}
		grace = min(f.grace, max(grace.Truncate(time.Millisecond), wrapper.MinGrace))
	}
	if !f.setTTL {
		ttl = min(ttl, longest-grace)
	}
	if ttl < minTTL || ttl+grace > longest {
		return cli.Usagef("--ttl %v and --grace %v are too long together: the server vouches for leases of at most %v, half of its session with ZooKeeper; see zookeeper-session-timeout", f.ttl, f.grace, longest)
	}
	f.ttl, f.grace = ttl, grace
	return nil
}

// wrapped is a command that runs while this process owns a mutex.
type wrapped struct {
	mutex   string
	flags   *leaseFlags
	options *redis.Options
	command wrapper.Command
	redis   *redis.Client
	client  *client.Client // over redis
	login   *loginWatch    // of redis
	signals <-chan os.Signal
	runner  wrapper.Runner
	log     *leaseLog
	silent  bool // the server did not reply to the last request
}

// newWrapped prepares lock or elect. It sends no request. The caller must close the result. Writes
// to the error output of cmd must not block, since the lease runs on meanwhile.
func newWrapped(cmd *cobra.Command, args []string, flags *leaseFlags) (*wrapped, error) {
	if err := argsError(cmd, args); err != nil {
		return nil, err
	}
	if err := flags.check(); err != nil {
		return nil, err
	}
	flags.setTTL, flags.setGrace = cmd.Flags().Changed("ttl"), cmd.Flags().Changed("grace")
	w := &wrapped{mutex: args[0], flags: flags}
	err := simba.CheckMutex(w.mutex)
	if err == nil && flags.id != "" {
		err = simba.CheckContender(flags.id)
	}
	if err != nil { // the server would refuse them, but it may be away
		return nil, cli.Usagef("%s %s: %v", cmd.Name(), cli.Printable(w.mutex), err)
	}
	if w.command, err = wrapper.Find(args[1:]); err != nil {
		return nil, err
	}
	if w.options, err = cli.Options(cmd); err != nil {
		return nil, err
	}
	w.signals = wrapper.Catch(flags.ignorePipe)
	say := func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "simba-resp: %s: %s\n", cli.Printable(w.mutex), fmt.Sprintf(format, args...))
	}
	w.log = &leaseLog{say: say, options: w.options}
	w.redis = redis.NewClient(w.options)
	w.login = &loginWatch{after: flags.giveUp, refused: make(chan error, 1)}
	w.redis.AddHook(w.login)
	w.runner = wrapper.Runner{Mutex: w.mutex, Signals: w.signals, Say: say}
	return w, w.plan()
}

// plan makes the client for the windows of the flags.
func (w *wrapped) plan() (err error) {
	w.runner.Grace = w.flags.grace
	hook := func(_ context.Context, e client.Event) {
		if e.Kind == "Contended" && w.flags.sayWaiting {
			w.runner.Say("waiting; %s", describe(e.Owner))
		}
	}
	w.client, err = client.New(w.redis, client.Options{
		// A renewal that gets no reply is repeated in the same TTL window, which has three.
		Timeout: min(max(w.flags.ttl/3, time.Second), 3*time.Second),
		TTL:     w.flags.ttl, Transition: w.flags.grace, Logger: slog.New(w.log), Hook: hook,
	})
	return err
}

// argsError returns an error unless the arguments are NAME -- command.
func argsError(cmd *cobra.Command, args []string) error {
	switch dash := cmd.ArgsLenAtDash(); {
	case len(args) == 0 || dash == 0:
		return cli.Usagef("the name of the mutex is missing: %s", cmd.UseLine())
	case dash < 0:
		return cli.Usagef("write -- before the command: %s", cmd.UseLine())
	case dash > 1:
		return cli.Usagef("unexpected argument %q before --: %s", args[1], cmd.UseLine())
	case len(args) == 1:
		return cli.Usagef("the command is missing: %s", cmd.UseLine())
	}
	return nil
}

// acquire locks the mutex. It waits for the mutex until ctx ends. If try is true, it does not wait.
// If a signal asks this process to end, acquire returns the error of endedBy.
func (w *wrapped) acquire(ctx context.Context, try bool) (*client.Lock, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		lock *client.Lock
		err  error
	}
	results := make(chan result, 1)
	lock := (*client.Client).Lock
	w.log.returned.Set(slog.LevelError)
	if try {
		lock = (*client.Client).TryLock
		w.log.returned.Set(slog.LevelWarn)
	}
	defer w.log.returned.Set(noLevel)
	go func() {
		for said := false; ; {
			l, err := lock(w.client, ctx, w.mutex, client.WithID(w.flags.id))
			if errors.Is(err, client.ErrInUse) && ctx.Err() == nil { // a request still uses the id
				time.Sleep(inUsePause)
				continue
			}
			if !try && w.login.mayRecover(err) && ctx.Err() == nil {
				if !said {
					w.runner.Say("trying again: %v", cli.Explain(w.options, err))
				}
				said = true
				select {
				case <-time.After(loginPause):
				case <-ctx.Done():
				}
				continue
			}
			if long := (*client.TooLongError)(nil); errors.As(err, &long) {
				_ = w.client.Close() // it owns nothing
				if err = w.flags.fit(long.Longest); err == nil {
					err = w.plan()
				}
				if err == nil {
					w.runner.Say("the server vouches for leases of at most %v: using --ttl %v --grace %v", long.Longest, w.flags.ttl, w.flags.grace)
					continue
				}
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
			r := <-results
			w.silent = errors.Is(r.err, client.ErrUnavailable)
			if r.lock != nil {
				_ = w.unlock(r.lock) // on an error the lease ends by itself
			}
			return nil, endedBy(sig, code)
		case err := <-w.login.refused:
			cancel()
			if r := <-results; r.lock != nil {
				return r.lock, nil
			}
			w.silent = true
			return nil, cli.Explain(w.options, err)
		case r := <-results:
			w.silent = errors.Is(r.err, client.ErrUnavailable)
			return r.lock, w.explain(r.err)
		}
	}
}

// explain gives an error of package client its exit code.
func (w *wrapped) explain(err error) error {
	var held *client.NotAcquiredError
	var reply redis.Error
	switch {
	case err == nil, errors.As(err, new(*cli.ExitError)):
		return err
	case errors.As(err, &reply) && strings.HasPrefix(reply.Error(), "NOPERM") && strings.Contains(reply.Error(), "contenders"):
		return &cli.ExitError{Code: exitUnavailable, Err: fmt.Errorf("%w; set --id to an id that the user may use: its name, its name followed by :…, or an id that its rule as: allows", cli.Explain(w.options, err))}
	case errors.Is(err, client.ErrUnavailable) || errors.As(err, &reply):
		return cli.Explain(w.options, err)
	case errors.As(err, &held):
		owner := describe(held.Owner)
		if held.Owner.IsZero() && held.Err != nil {
			owner += ", or has not replied yet"
		}
		return &cli.ExitError{Code: exitConflict, Err: fmt.Errorf("%s: not acquired; %s", cli.Printable(w.mutex), owner)}
	}
	// The name or the id is not valid.
	return &cli.ExitError{Code: exitUsage, Err: errors.New(cli.Printable(err.Error()))}
}

// describe says why the server does not grant the mutex.
func describe(owner client.Owner) string {
	if owner.IsZero() {
		return "another waiter is next, or the server delays new grants"
	}
	return "its owner is " + cli.Printable(owner.ID)
}

// run runs the command while the mutex is locked, and then unlocks it.
func (w *wrapped) run(l *client.Lock) (wrapper.Result, error) {
	result, err := w.runner.Run(w.command, l)
	switch unlocked := w.unlock(l); {
	case errors.Is(unlocked, client.ErrLost):
		result.Lost = true
	case unlocked != nil && !result.Lost:
		w.runner.Say("not released; it is free when its lease ends: %v", cli.Explain(w.options, unlocked))
	}
	return result, err
}

func (w *wrapped) unlock(l *client.Lock) error {
	err := l.Unlock(context.Background())
	w.silent = errors.Is(err, client.ErrUnavailable)
	return err
}

// outcome returns the error that ends this process when the command has ended.
func (w *wrapped) outcome(r wrapper.Result) error {
	switch {
	case r.Lost && r.Code == wrapper.NotStarted:
		return &cli.ExitError{Code: exitLost, Err: fmt.Errorf("%s: the mutex was lost before the command started", cli.Printable(w.mutex))}
	case r.Lost:
		return &cli.ExitError{Code: exitLost, Err: fmt.Errorf("%s: the mutex was lost while the command ran, or could not be renewed; the exit code of the command is %d", cli.Printable(w.mutex), r.Code)}
	case r.Code != 0:
		return &cli.ExitError{Code: r.Code, Interrupted: r.Signal == unix.SIGINT}
	}
	return nil
}

// close closes the client, which leaves all queues and releases all leases. If the server did not
// reply to the last request, close does nothing.
func (w *wrapped) close() {
	if !w.silent {
		_ = w.client.Close()
	}
}
