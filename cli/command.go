package cli

import (
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// Commands returns the client commands of simba-resp.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		statusCommand(), listCommand(), ownerCommand(), queueCommand(), historyCommand(),
		watchCommand(), whyCommand(), breakCommand(), healthCommand(),
	}
}

// newCommand returns a command without flags that completes no files.
func newCommand(use, short string, args cobra.PositionalArgs, run func(*cobra.Command, []string) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " [flags]", Short: short, Args: args, RunE: run,
		ValidArgsFunction: cobra.NoFileCompletions, DisableFlagsInUseLine: true,
	}
}

type action func(cmd *cobra.Command, c *redis.Client, args []string) error

// clientCommand returns a command that connects to the server and can print JSON.
func clientCommand(use, short string, args cobra.PositionalArgs, do action) *cobra.Command {
	cmd := newCommand(use, short, args, func(cmd *cobra.Command, args []string) error {
		c, err := Connect(cmd)
		if err != nil {
			return err
		}
		defer c.Close()
		return do(cmd, c, args)
	})
	AddConnection(cmd)
	cmd.Flags().Bool("json", false, "print JSON, one object a line")
	return cmd
}

// asJSON reports whether a command of clientCommand prints JSON.
func asJSON(cmd *cobra.Command) bool {
	given, _ := cmd.Flags().GetBool("json") // the flag exists
	return given
}

// mutexCommand is clientCommand for commands whose only argument is a mutex.
func mutexCommand(use, short string, do func(cmd *cobra.Command, c *redis.Client, mutex string) error) *cobra.Command {
	cmd := clientCommand(use, short, arguments(1, 1, "the NAME of a mutex"), func(cmd *cobra.Command, c *redis.Client, args []string) error {
		return do(cmd, c, args[0])
	})
	cmd.ValidArgsFunction = CompleteMutex
	return cmd
}

// arguments checks the number of a command's arguments. An error for too few of them says that the
// command needs names.
func arguments(atLeast, atMost int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < atLeast:
			return Usagef("%s needs %s (%s --help)", cmd.Name(), names, cmd.CommandPath())
		case len(args) > atMost:
			return Usagef("unexpected argument '%s' of %s (%s --help)", Printable(args[atMost]), cmd.Name(), cmd.CommandPath())
		}
		return nil
	}
}

// no returns the error of a command whose answer is no. It has exit code 1.
func no(format string, args ...any) error {
	return &ExitError{Code: exitNo, Err: fmt.Errorf(format, args...)}
}
