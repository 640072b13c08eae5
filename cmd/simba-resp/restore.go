package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-resp/simba-resp/persist"
)

// What a restore does about leases that were granted after the backup, and what that risks. Each is
// the text of a flag's help too.
const (
	quietHelp = "Grant nothing new for this long after the server's first start. " +
		"It must be at least the longest ttl + transition that any client asks for"
	quietRisk = "An owner of the backup can renew by SIMBA.GUARD at once. Risks: a lease that was granted " +
		"after the backup, and is longer, can still run when its mutex gets another owner. " +
		"An owner of the backup that lost its mutex after the backup, and has not noticed, can renew it"
	ownersStoppedHelp = "Grant at once, since no owner of the old server works any more. " +
		"Each lease of the backup gets a new token"
	ownersStoppedRisk = "Risk: an owner that still works can have a second owner beside it at once. " +
		"Only a resource that checks tokens refuses the first one"
)

// restoreFlags are the flags of the command restore.
type restoreFlags struct {
	dataDir       string
	quiet         time.Duration
	ownersStopped bool
}

// restoreCommand returns the command restore. It runs beside no server.
func restoreCommand() *cobra.Command {
	var f restoreFlags
	cmd := &cobra.Command{
		Use:   "restore DIR --data-dir NEW (--quiet DURATION | --owners-stopped)",
		Short: "Write a new data directory from a backup",
		Long: "Write a new data directory from the backup in DIR. The old server must have stopped for good.\n\n" +
			"The backup lacks what the old server did later. Tokens and event numbers go on above the wall clock in\n" +
			"microseconds, so none repeats. The leases of the backup begin anew, in full, at the first start. Leases\n" +
			"that were granted later are lost, so choose one of:\n\n" +
			"--quiet DURATION: " + quietHelp + ". " + quietRisk + ".\n\n" +
			"--owners-stopped: " + ownersStoppedHelp + ". " + ownersStoppedRisk + ".",
		Args: oneDir,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := untilInterrupt(cmd.Context())
			defer stop()
			return restoreBackup(ctx, args[0], f, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dataDir, "data-dir", "", "Data directory to create; it must be empty or not exist")
	flags.DurationVar(&f.quiet, "quiet", 0, quietHelp)
	flags.BoolVar(&f.ownersStopped, "owners-stopped", false, ownersStoppedHelp)
	return cmd
}

// oneDir requires one argument.
func oneDir(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return configErrors{fmt.Errorf("%s: name one directory of a backup; there are %d arguments", cmd.Name(), len(args))}
	}
	return nil
}

// restoreBackup writes a data directory from the backup in dir, and writes to out what that risks.
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
		fmt.Fprintf(out, "%d keys in it have no lease of a contender: they last longer, or until DEL\n", info.Others)
	}
	done, err := persist.Restore(ctx, persist.RestoreOptions{
		From: from, Dir: f.dataDir, Quiet: f.quiet, OwnersStopped: f.ownersStopped,
	})
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	fmt.Fprintf(out, "restored to %s: tokens go on above %d\n", f.dataDir, done.Floor)
	if f.ownersStopped {
		fmt.Fprintf(out, "--owners-stopped: %s.\n", ownersStoppedRisk)
	} else {
		fmt.Fprintf(out, "--quiet %v: %s.\n", f.quiet, quietRisk)
	}
	return nil
}

// check returns an error in the flags.
func (f *restoreFlags) check() error {
	switch {
	case f.dataDir == "":
		return configErrors{errors.New("restore: --data-dir is required; name the data directory to create")}
	case f.ownersStopped && f.quiet != 0:
		return configErrors{errors.New("restore: use only one of --quiet and --owners-stopped")}
	case f.quiet < 0 || f.quiet > persist.MaxQuiet:
		return configErrors{fmt.Errorf("restore: --quiet must be above 0 and at most %v, not %v", persist.MaxQuiet, f.quiet)}
	case f.quiet == 0 && !f.ownersStopped:
		return configErrors{fmt.Errorf("restore: leases that were granted after the backup are lost, so one of these flags is required.\n"+
			"--quiet DURATION: %s. %s.\n--owners-stopped: %s. %s.", quietHelp, quietRisk, ownersStoppedHelp, ownersStoppedRisk)}
	}
	return nil
}

// untilInterrupt returns a context that ends when a user or a service manager stops the command.
func untilInterrupt(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
}
