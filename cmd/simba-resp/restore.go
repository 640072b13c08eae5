package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-resp/simba-resp/persist"
)

// These texts say what the flags do, and what they risk for leases that were granted after the
// backup.
const (
	delayHelp = "Grant nothing new for this long after the server's first start. " +
		"Name at least the longest ttl + transition that any program asks for."
	delayRisk = "An owner in the backup can renew by SIMBA.GUARD at once. " +
		"Risk: a longer lease that was granted after the backup can still run when its mutex gets another owner. " +
		"Risk: an owner that lost its mutex after the backup, and has not noticed, can renew it."
	stoppedHelp = "Grant at once: no owner works any more. Each lease in the backup gets a new token."
	stoppedRisk = "Risk: if an owner still works, its mutex can get a second one at once. " +
		"Only a resource that checks tokens then refuses the first."
)

// bothWays explains the flags, with a separator between them.
func bothWays(separator string) string {
	return "--recovery-delay DURATION\n" + wrap(delayHelp+" "+delayRisk) + separator +
		"--owners-stopped\n" + wrap(stoppedHelp+" "+stoppedRisk)
}

type restoreFlags struct {
	dataDir       string
	delay         time.Duration
	ownersStopped bool
}

// restoreCommand returns the command restore, which needs no server.
func restoreCommand() *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use:   "restore DIR --data-dir NEW (--recovery-delay DURATION | --owners-stopped)",
		Short: "Write a new data directory from a backup",
		Long: "Write a new data directory from the backup in DIR. The old server must have stopped for good.\n\n" +
			"New tokens and event numbers are larger than the time in microseconds. If the clock is right, none\n" +
			"is used twice. The leases in the backup begin anew, in full, at the first start. Leases that were\n" +
			"granted after the backup are lost, so choose one of:\n\n" + strings.TrimSuffix(bothWays("\n"), "\n"),
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilInterrupt(cmd.Context())
			defer stop()
			return restoreBackup(ctx, args[0], f, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dataDir, "data-dir", "", "data `DIRECTORY` to create; it must be empty or not exist")
	flags.DurationVar(&f.delay, "recovery-delay", 0, "no new grants for this `DURATION`")
	flags.BoolVar(&f.ownersStopped, "owners-stopped", false, "no owner of the old server works any more")
	return ownHelp(cmd)
}

// restoreBackup writes a data directory from the backup in dir, and writes the risks to out.
func restoreBackup(ctx context.Context, dir string, f restoreFlags, out io.Writer) error {
	if err := f.check(); err != nil {
		return err
	}
	from := filepath.Join(dir, backupName)
	info, err := persist.ReadBackup(nil, from)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	fmt.Fprintf(out, "%s: %s\n", from, describeBackup(info))
	if info.Longest > 0 {
		fmt.Fprintf(out, "its longest lease is that of mutex %q: %v\n", info.LongestOf, info.Longest)
	}
	if info.Others > 0 {
		fmt.Fprintf(out, "%d keys in it have no lease of a contender: they expire later than any such lease, or never\n", info.Others)
	}
	done, err := persist.Restore(ctx, persist.RestoreOptions{
		From: from, Dir: f.dataDir, RecoveryDelay: f.delay, OwnersStopped: f.ownersStopped,
	})
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("restore: interrupted; nothing was restored to %s, so restore again", f.dataDir)
	case err != nil:
		return fmt.Errorf("restore: %w", err)
	}
	fmt.Fprintf(out, "restored to %s: tokens go on above %d\n", f.dataDir, done.Floor)
	if f.ownersStopped {
		fmt.Fprintf(out, "--owners-stopped\n%s", wrap(stoppedRisk))
	} else {
		fmt.Fprintf(out, "--recovery-delay %v\n%s", f.delay, wrap(delayRisk))
	}
	return nil
}

func (f *restoreFlags) check() error {
	switch {
	case f.dataDir == "":
		return configErrors{errors.New("restore: --data-dir is required; name the data directory to create")}
	case f.ownersStopped && f.delay != 0:
		return configErrors{errors.New("restore: use only one of --recovery-delay and --owners-stopped")}
	case f.delay < 0 || f.delay > persist.MaxRecoveryDelay:
		return configErrors{fmt.Errorf("restore: --recovery-delay must be above 0 and at most %v, not %v", persist.MaxRecoveryDelay, f.delay)}
	case f.delay == 0 && !f.ownersStopped:
		return configErrors{errors.New("restore: later leases are lost, so one of these flags is required:\n" +
			strings.TrimSuffix(bothWays(""), "\n"))}
	}
	return nil
}
