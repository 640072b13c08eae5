package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout is the time limit of a completion, for which a person waits.
const completionTimeout = 2 * time.Second

// maxCompletions is about how many names a completion offers.
const maxCompletions = 100

// CompleteMutex completes the first argument, the name of a mutex, by asking the server. It offers
// nothing if the server does not reply in time.
func CompleteMutex(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 {
		return nil, directive
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	cmd.SetContext(ctx)
	c, err := Connect(cmd)
	if err != nil {
		return nil, directive
	}
	defer c.Close()
	glob := globEscaper.Replace(prefix) + "*"
	names, _ := scanNames(ctx, c, maxCompletions, "MATCH", glob)
	return slices.DeleteFunc(names, func(name string) bool {
		return Printable(name) != name || strings.HasPrefix(name, "-")
	}), directive
}

// globEscaper writes a text as a glob that matches it.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
