package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// listed is a mutex in the output of list: its tenure, or the error reply of SIMBA.OWNER.
type listed struct {
	Tenure
	err string
}

// Hidden is the JSON of a mutex whose tenure is not known.
type Hidden struct {
	Mutex string `json:"mutex" doc:"name"`
	Error string `json:"error" doc:"the error reply to SIMBA.OWNER"`
}

func (l listed) json() any {
	if l.err != "" {
		return Hidden{l.Mutex, l.err}
	}
	return l.Tenure
}

// failed reports whether the server could not answer. A refusal is an answer: the user may not read
// the mutex, or SIMBA commands do not accept the name of a Redis key.
func (l listed) failed() bool {
	return l.err != "" && !strings.HasPrefix(l.err, "NOPERM ") && !strings.HasPrefix(l.err, "ERR invalid mutex")
}

func listCommand() *cobra.Command {
	var contended *bool
	var owner *string
	cmd := clientCommand("list [PATTERN]", "List the mutexes that have an owner or waiters", arguments(0, 1, ""),
		func(cmd *cobra.Command, c *redis.Client, args []string) error {
			scan := []any{"MATCH", "*"}
			if len(args) > 0 {
				scan[1] = args[0]
			}
			if *contended {
				scan = append(scan, "STATE", "contended")
			}
			names, err := scanNames(cmd.Context(), c, math.MaxInt, scan...)
			if err != nil {
				return err
			}
			only := func(print func(listed) error) func(listed) error {
				return func(l listed) error {
					if *owner != "" && l.err == "" && l.Owner != *owner {
						return nil
					}
					return print(l)
				}
			}
			if asJSON(cmd) {
				return list(cmd.Context(), c, names, only(func(l listed) error { return printJSON(cmd.OutOrStdout(), l.json()) }))
			}
			t := newTable(cmd.OutOrStdout(), "MUTEX", "OWNER", "TOKEN", "LEASE LEFT", "WAITERS")
			err = list(cmd.Context(), c, names, only(t.list))
			return cmp.Or(t.flush(), err)
		})
	cmd.Long = cmd.Short + `, sorted by name.

PATTERN is a glob as of Redis' SCAN: * ? [a-z], and \ before a literal character. Quote it in a shell.
A mutex that gets or loses its owner meanwhile may be missing. Where the owner is not known, its
column has "?" and the reason. Exit code 69: the server could not answer for all mutexes.`
	cmd.Example = "  simba-resp list 'billing:*'\n  simba-resp list --owner worker-7"
	contended = cmd.Flags().Bool("contended", false, "only mutexes that have waiters")
	owner = cmd.Flags().String("owner", "", "only mutexes of this `ID`, and those whose owner is not known")
	_ = cmd.RegisterFlagCompletionFunc("owner", cobra.NoFileCompletions)
	return cmd
}

// scanCount is the COUNT of SIMBA.SCAN, and the number of mutexes in one pipeline.
const scanCount = 1000

// scanNames returns the names of the mutexes, sorted. It ends the scan when it has enough names. If
// the scan fails, it returns the names until then. SIMBA.SCAN can return a name twice.
func scanNames(ctx context.Context, c *redis.Client, enough int, options ...any) (names []string, err error) {
	for cursor, page := "0", []string(nil); err == nil && len(names) < enough; {
		page, cursor, err = toPage(ask(ctx, c, append([]any{"SIMBA.SCAN", cursor, "COUNT", scanCount}, options...)...))
		names = append(names, page...)
		if cursor == "0" {
			break
		}
	}
	slices.Sort(names)
	return slices.Compact(names), err
}

// list asks for the tenures of mutexes, and calls print for each. It returns an error if the server
// could not answer for some.
func list(ctx context.Context, c *redis.Client, names []string, print func(listed) error) error {
	failed, why := 0, ""
	for page := range slices.Chunk(names, scanCount) {
		answers, err := tenures(ctx, c, page)
		if err != nil {
			return err
		}
		for _, l := range answers {
			if l.failed() {
				failed, why = failed+1, l.err
			}
			if err := print(l); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return &ExitError{Code: exitUnavailable, Err: fmt.Errorf("incomplete: the owners of %d of %d mutexes are not known: %s", failed, len(names), Printable(why))}
	}
	return nil
}

// toPage converts a reply of SIMBA.SCAN.
func toPage(v any, err error) (names []string, next string, _ error) {
	parts, ok := v.([]any)
	switch {
	case err != nil:
		return nil, "", err
	case !ok || len(parts) != 2:
		return nil, "", fmt.Errorf("the server replied %T instead of a page; is it simba-resp?", v)
	}
	next = fmt.Sprint(parts[0])
	if _, err := strconv.ParseUint(next, 10, 64); err != nil {
		return nil, "", fmt.Errorf("the server replied an invalid cursor; is it simba-resp?")
	}
	list, _ := parts[1].([]any)
	for _, element := range list {
		names = append(names, fmt.Sprint(element))
	}
	return names, next, nil
}

func tenures(ctx context.Context, c *redis.Client, names []string) ([]listed, error) {
	cmds := make([]*redis.Cmd, len(names))
	// Each command has its own error.
	_, _ = c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			cmds[i] = p.Do(ctx, "SIMBA.OWNER", name)
		}
		return nil
	})
	page := make([]listed, len(names))
	for i, cmd := range cmds {
		v, err := reply(cmd)
		var refused redis.Error
		switch {
		case errors.As(err, &refused):
			page[i] = listed{Tenure{Mutex: names[i]}, refused.Error()}
			continue
		case err != nil:
			return nil, Explain(c.Options(), err)
		}
		if page[i].Tenure, err = toTenure(names[i], v); err != nil {
			return nil, err
		}
	}
	return page, nil
}

func (t table) list(l listed) error {
	switch {
	case l.err != "":
		t.row(l.Mutex, "? "+l.err)
	case !l.Held:
		t.row(l.Mutex, "-", "-", "-", "-")
	default:
		t.row(l.Mutex, l.Owner, number(l.Token), leaseLeft(l.Transition), number(l.Waiters))
	}
	return nil
}

func leaseLeft(ms *int64) string {
	if ms == nil {
		return noExpiry
	}
	return millis(*ms)
}
