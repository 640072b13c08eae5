package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/simba-resp/simba-resp/wrapper"
)

// restartPause is the time between the end of the command and the next request for the mutex. It
// bounds the load of a command that fails at once.
const restartPause = time.Second

func electCommand() *cobra.Command {
	var flags leaseFlags
	var restart bool
	cmd := &cobra.Command{
		Use:   "elect [flags] NAME -- command [arguments]",
		Short: "Run a command whenever this process is the leader",
		Long: `Contend for the mutex NAME. While this process owns it, run the command as lock
does. When the mutex is lost or cannot be renewed, stop the command, and contend
again when it has ended.

When the command ends by itself, release the mutex and exit with its code. With
--restart, release the mutex and contend again after a second. A signal to this
process goes to the command. If it is SIGHUP, SIGINT, SIGQUIT or SIGTERM, exit
when the command has ended.

The exit codes are those of lock. There is no 75, and 76 appears only if such
a signal came and the mutex was lost.`,
		Example:               `  simba-resp elect --restart scheduler -- /usr/local/bin/scheduler`,
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := newWrapped(cmd, args, &flags)
			if err != nil {
				return err
			}
			defer w.close()
			return w.elect(cmd.Context(), restart)
		},
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&restart, "restart", false, "contend again when the command ends by itself")
	return cmd
}

// elect runs the command in each tenure.
func (w *wrapped) elect(ctx context.Context, restart bool) error {
	for {
		l, err := w.acquire(ctx, false)
		if err != nil {
			return err
		}
		w.runner.Say("acquired, token %d", l.Token())
		result, err := w.run(l)
		switch {
		case err != nil:
			return err
		case result.Asked || !result.Lost && !restart:
			return w.outcome(result)
		case result.Lost && result.Code == wrapper.NotStarted:
			w.runner.Say("the mutex was lost before the command started; contending again")
			continue
		case result.Lost:
			w.runner.Say("the command has ended; contending again")
			continue
		}
		w.runner.Say("the command has ended with exit code %d; contending again in %v", result.Code, restartPause)
		if err := w.pause(); err != nil {
			return err
		}
	}
}

// pause waits for restartPause. If a signal asks this process to end, it returns the error of
// endedBy.
func (w *wrapped) pause() error {
	timer := time.NewTimer(restartPause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case sig := <-w.signals:
			if code, ends := wrapper.Ends(sig); ends {
				return endedBy(sig, code)
			}
		}
	}
}
