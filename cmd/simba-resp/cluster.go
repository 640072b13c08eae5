package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/simba-resp/simba-resp/cli"
	"github.com/simba-resp/simba-resp/cluster"
	"github.com/simba-resp/simba-resp/persist"
)

func clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "cluster", Short: "Show and change the members of a cluster",
		RunE: func(cmd *cobra.Command, args []string) error { return unknownCommand(cmd, strings.Join(args, " ")) },
	}
	cmd.AddCommand(cli.ClusterCommands()...)
	cmd.AddCommand(recoverCommand())
	return ownHelp(cmd)
}

func recoverCommand() *cobra.Command {
	var o persist.Options
	cmd := &cobra.Command{
		Use: "recover --from DIR [--recovery-delay DURATION]", Args: cobra.NoArgs,
		Short: "Make a data directory that of the first member of a new cluster",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cluster.Recover(o); err != nil {
				return fmt.Errorf("recover: %w", err)
			}
			lost := "It has all leases."
			if o.RecoveryDelay != 0 {
				lost = "Leases and tokens that it lacked are lost. Nothing new is granted for " + o.RecoveryDelay.String() + ", or the longest lease that it has."
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s is the directory of the first member of a new cluster.\n%s\nStart all other members with empty directories.\n", o.Dir, lost)
			return err
		},
	}
	cmd.Flags().StringVar(&o.Dir, "from", "", "data `DIRECTORY` to change, of a single server or of a member; no server may use it")
	cmd.Flags().DurationVar(&o.RecoveryDelay, "recovery-delay", 0, "grant nothing new for this `DURATION`, required for the directory of a member: at least the longest ttl + transition that any program asks for")
	return ownHelp(cmd)
}
