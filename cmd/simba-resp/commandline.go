package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/simba-resp/simba-resp/cli"
)

// run executes the command line. If it serves, it returns when the server has stopped. An error
// may have a method ExitCode.
func run(ctx context.Context, args []string, getenv func(string) string, stdout io.Writer, log *logBuffer) error {
	out := &output{to: stdout}
	root := newRoot(out, getenv, func(ctx context.Context, cfg *config) error { return serveUntilSignal(ctx, cfg, log) })
	root.SetArgs(args)
	root.SetErr(log)
	return out.result(root.ExecuteContext(ctx))
}

// output is standard output. It keeps its first error, since not every command returns that error.
type output struct {
	to  io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	o.err = cmp.Or(o.err, err)
	return n, err
}

// result returns the error of a command that has returned err.
func (o *output) result(err error) error {
	switch {
	case o.err == nil:
		return err
	case err == nil:
		err = fmt.Errorf("done, but the output is lost: %w", o.err)
	case !errors.Is(err, o.err):
		err = joinErrors(err, o.err)
	}
	return outputError{err}
}

type outputError struct{ error }

func (outputError) ExitCode() int { return exitOutput }

// newRoot returns the command line. Without a subcommand it serves, if there is any setting.
func newRoot(out io.Writer, getenv func(string) string, serve func(context.Context, *config) error) *cobra.Command {
	root := settingsCommand("simba-resp", getenv, serve)
	root.SetOut(out)
	root.Short = "Distributed locks and leader election for Redis clients"
	root.Version = fmt.Sprintf("%s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	root.SilenceErrors = true // main reports the error
	root.SilenceUsage = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		path := cmd.CommandPath()
		if cmd == root {
			path += " serve"
		}
		return configErrors{fmt.Errorf("%w (%s --help lists the flags)", err, path)}
	})
	root.AddCommand(cli.Commands()...)

	serving := settingsCommand("serve", getenv, serve)
	serving.Short = "Serve Redis clients"

	check := settingsCommand("check", getenv, func(_ context.Context, cfg *config) error {
		if warning := cfg.tlsWarning(); warning != "" {
			fmt.Fprintln(root.OutOrStdout(), "warning:", warning)
		}
		_, err := fmt.Fprintln(root.OutOrStdout(), "the configuration is valid")
		return err
	})
	check.Short = "Check the settings of the server, report each error and exit"

	showVersion := &cobra.Command{
		Use: "version", Short: "Print the version and exit", Args: cobra.NoArgs, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(root.OutOrStdout(), "%s version %s\n", root.Name(), root.Version)
			return err
		},
	}

	root.AddCommand(serving, check, showVersion, lockCommand(), electCommand(), backupCommand(), restoreCommand(), clusterCommand())
	root.SuggestionsMinimumDistance = 2
	return root
}

func unknownCommand(cmd *cobra.Command, word string) error {
	hint := ""
	if like := cmd.SuggestionsFor(word); len(like) > 0 {
		hint = "; do you mean " + strings.Join(like, " or ") + "?"
	}
	return configErrors{fmt.Errorf("unknown command '%s'%s (%s --help lists the commands)", cli.Printable(word), hint, cmd.CommandPath())}
}

// settingsCommand returns a command whose flags are the settings of the server.
func settingsCommand(name string, getenv func(string) string, do func(context.Context, *config) error) *cobra.Command {
	given := make(map[string]string)
	cmd := &cobra.Command{
		Use: name,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return nil
			case cmd.HasParent():
				return configErrors{fmt.Errorf("unexpected argument '%s' (%s --help lists the flags)", cli.Printable(args[0]), cmd.CommandPath())}
			}
			return unknownCommand(cmd, args[0])
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.HasParent() && len(given) == 0 && !hasSetting(getenv) {
				_ = cmd.Help() // output keeps the error
				return &cli.ExitError{Code: exitUsage}
			}
			cfg, err := loadConfig(given, getenv)
			if err != nil {
				return err
			}
			return do(cmd.Context(), cfg)
		},
	}
	addSettings(cmd, given)
	cmd.SetHelpFunc(func(asked *cobra.Command, args []string) {
		if asked != cmd { // a command without settings inherits the function of its parent
			new(cobra.Command).HelpFunc()(asked, args)
			return
		}
		_, _ = io.WriteString(cmd.OutOrStdout(), settingsHelp(cmd)) // output keeps the error
	})
	return cmd
}

// hasSetting reports whether a variable sets a setting of the server.
func hasSetting(getenv func(string) string) bool {
	return getenv(cli.Variable(configFlag)) != "" ||
		slices.ContainsFunc(new(config).fields(), func(f field) bool { return getenv(cli.Variable(f.name)) != "" })
}

// addSettings adds a flag for each setting and for --config. Parsing stores the given values in the
// map, by name.
func addSettings(cmd *cobra.Command, given map[string]string) {
	flags := cmd.Flags()
	record := func(name string) func(string) error {
		return func(s string) error { given[name] = s; return nil }
	}
	flags.Func(configFlag, "TOML file of settings", record(configFlag))
	for _, f := range new(config).fields() {
		if _, ok := f.value.(*boolean); ok {
			flags.BoolFunc(f.name, f.help, record(f.name))
		} else {
			flags.Func(f.name, f.help, record(f.name))
		}
		if c, ok := f.value.(choice); ok {
			// This fails only if there is no such flag.
			_ = cmd.RegisterFlagCompletionFunc(f.name, cobra.FixedCompletions(c.from, cobra.ShellCompDirectiveNoFileComp))
		}
	}
}

// settingsHelp returns the page of --help of a command that has the settings as flags. The page of
// the root lists the commands instead.
func settingsHelp(cmd *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\nusage: %[1]s [flags]\n", cmd.CommandPath(), cmd.Short)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&b, "       %s command [flags]\n\n", cmd.CommandPath())
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-12s %s\n", sub.Name(), sub.Short)
			}
		}
		fmt.Fprintf(&b, "\n%s command --help describes a command. Flags without a command are those of serve.\n", cmd.CommandPath())
		return b.String()
	}
	b.WriteString(`
A flag overrides its environment variable. The variable overrides the key of the same name in the
TOML file, and the key overrides the default. Durations are written as 1s, 500ms or 1h30m.

`)
	for _, f := range new(config).fields() {
		fmt.Fprintf(&b, "  --%s %s\n%s        default %s, environment %s\n", f.name, f.kind, wrap(f.help), cmp.Or(f.initial, "none"), cli.Variable(f.name))
	}
	fmt.Fprintf(&b, `  --%s path
        TOML file of settings. Its keys are the names of the flags above.
        default none, environment %s
  --help
        Print this page and exit.
`, configFlag, cli.Variable(configFlag))
	return b.String()
}
