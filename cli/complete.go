package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const (
	// completionTimeout is the time limit of a completion, for which a person waits.
	completionTimeout = 2 * time.Second
	mostCompletions   = 100
)

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
	var names []cobra.Completion
	glob := globEscaper.Replace(prefix) + "*"
	for cursor := "0"; len(names) < mostCompletions; {
		v, err := reply(c.Do(ctx, "SIMBA.SCAN", cursor, "MATCH", glob, "COUNT", scanCount))
		if err != nil {
			break
		}
		page, next, err := toPage(v)
		for _, name := range page {
			if Printable(name) == name && !strings.HasPrefix(name, "-") {
				names = append(names, name)
			}
		}
		if err != nil || next == "0" {
			break
		}
		cursor = next
	}
	return names, directive
}

// globEscaper writes a text as a glob that matches it.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
