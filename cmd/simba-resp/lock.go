package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/simba-resp/simba-resp/cli"
)

func lockCommand() *cobra.Command {
	var flags leaseFlags
	var wait time.Duration
	var try, quiet, verbose bool
	conflict := exitConflict
	cmd := &cobra.Command{
		Use:   "lock [flags] NAME -- command [arguments]",
		Short: "Run a command while this process owns a mutex",
		Long: `Acquire the mutex NAME, run the command, and release the mutex when the command
has ended. The lease is renewed meanwhile. If that fails, the command is stopped
before the lease ends. It gets SIGTERM at the end of the TTL window (--ttl), and
SIGKILL before the end of the transition window (--grace).

The command has SIMBA_MUTEX, SIMBA_OWNER and SIMBA_TOKEN in its environment. It
gets the signals that this process gets. On Linux it dies with this process.

The exit code is that of the command, or 128+n if signal n has ended it or the
wait for the mutex. It is 69 if the server cannot be reached or refuses the
request, and 75 if the mutex was not acquired. It is 76 if the mutex was lost or
could not be renewed. It is 126 if the command cannot run, and 127 if it was not
found.`,
		Example: `  simba-resp lock --try backup -- /usr/local/bin/backup
  simba-resp lock --wait 30s deploy -- sh -c 'deploy --fence "$SIMBA_TOKEN"'`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case conflict < 0 || conflict > 255:
				return cli.Usagef("--conflict-exit-code is %d, not 0 to 255", conflict)
			case try && cmd.Flags().Changed("wait"):
				return cli.Usagef("--try and --wait exclude each other")
			case quiet && verbose:
				return cli.Usagef("--quiet and --verbose exclude each other")
			case cmd.Flags().Changed("wait") && wait <= 0:
				return cli.Usagef("--wait is %v; use a positive duration, or --try", wait)
			}
			flags.sayWaiting = !try && (verbose || !quiet && term.IsTerminal(int(os.Stderr.Fd())))
			w, err := newWrapped(cmd, args, &flags)
			if err != nil {
				return err
			}
			defer w.close()
			ctx := cmd.Context()
			if wait > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, wait)
				defer cancel()
			}
			l, err := w.acquire(ctx, try)
			if failed := (*cli.ExitError)(nil); errors.As(err, &failed) && failed.Code == exitConflict {
				failed.Code = conflict
				if quiet || conflict == 0 && !verbose {
					failed.Err = nil
				}
			}
			if err != nil {
				return err
			}
			result, err := w.run(l)
			if err != nil {
				return err
			}
			return w.outcome(result)
		},
	}
	flags.add(cmd)
	cmd.Flags().DurationVar(&wait, "wait", 0, "wait for the mutex for at most this `DURATION`; without the flag there is no limit")
	cmd.Flags().BoolVar(&try, "try", false, "do not wait for the mutex")
	cmd.Flags().IntVar(&conflict, "conflict-exit-code", exitConflict, "exit `CODE` if the mutex is not acquired")
	cmd.Flags().BoolVar(&quiet, "quiet", false, "print nothing if the mutex is not acquired; the default with --conflict-exit-code 0")
	cmd.Flags().BoolVar(&verbose, "verbose", false, "say who owns the mutex while this process waits; the default in a terminal")
	return cmd
}
