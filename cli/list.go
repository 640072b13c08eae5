package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// listed is a mutex in the output of list: its tenure, or why the server does not show it. The user
// may not read the mutex, or its name is that of a Redis key and no valid name for SIMBA.*.
type listed struct {
	Tenure
	err string
}

// Hidden is the JSON form of a mutex whose tenure the server does not show.
type Hidden struct {
	Mutex string `json:"mutex"`
	Error string `json:"error"`
}

// json returns the value to encode.
func (l listed) json() any {
	if l.err != "" {
		return Hidden{l.Mutex, l.err}
	}
	return l.Tenure
}

func listCommand() *cobra.Command {
	var asJSON, contended *bool
	cmd := clientCommand("list [PATTERN]", "List the mutexes that have an owner or waiters", arguments(0, 1, ""),
		func(cmd *cobra.Command, c *redis.Client, args []string) error {
			scan := []any{"MATCH", "*", "COUNT", scanCount}
			if len(args) > 0 {
				scan[1] = args[0]
			}
			if *contended {
				scan = append(scan, "STATE", "contended")
			}
			if *asJSON {
				return list(cmd.Context(), c, scan, func(page []listed) error {
					for _, l := range page {
						if err := printJSON(cmd.OutOrStdout(), l.json()); err != nil {
							return err
						}
					}
					return nil
				})
			}
			t := newTable(cmd.OutOrStdout(), "MUTEX", "OWNER", "TOKEN", "LEASE LEFT", "WAITERS")
			if err := list(cmd.Context(), c, scan, t.list); err != nil {
				return err
			}
			return t.flush()
		})
	cmd.Long = cmd.Short + `.

PATTERN is a glob as of Redis' SCAN: * ? [a-z] and \ before a literal character. Quote it in a shell.
A mutex that changes meanwhile may be listed or not.`
	cmd.Example = "  simba-resp list 'billing:*'"
	contended = cmd.Flags().Bool("contended", false, "only mutexes that have waiters")
	asJSON = addJSON(cmd)
	return cmd
}

// scanCount is the number of mutexes that the server examines for a page.
const scanCount = 1000

// list iterates over the mutexes and calls print for each page. Like SIMBA.SCAN, the server can
// return a mutex twice, so list remembers their names.
func list(ctx context.Context, c *redis.Client, options []any, print func([]listed) error) error {
	seen := make(map[string]bool)
	for cursor := "0"; ; {
		v, err := reply(c.Do(ctx, append([]any{"SIMBA.SCAN", cursor}, options...)...))
		if err != nil {
			return Explain(c.Options(), err)
		}
		names, next, err := toPage(v)
		if err != nil {
			return err
		}
		fresh := names[:0]
		for _, name := range names {
			if !seen[name] {
				seen[name] = true
				fresh = append(fresh, name)
			}
		}
		page, err := tenures(ctx, c, fresh)
		if err != nil {
			return err
		}
		if err := print(page); err != nil || next == "0" {
			return err
		}
		cursor = next
	}
}

// toPage converts the reply of SIMBA.SCAN.
func toPage(v any) (names []string, next string, err error) {
	parts, ok := v.([]any)
	if !ok || len(parts) != 2 {
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

// tenures asks for the tenures of mutexes, in one pipeline.
func tenures(ctx context.Context, c *redis.Client, names []string) ([]listed, error) {
	if len(names) == 0 {
		return nil, nil
	}
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

// list adds a row for each mutex.
func (t table) list(page []listed) error {
	for _, l := range page {
		switch {
		case l.err != "":
			t.row(l.Mutex, "? "+l.err)
		case !l.Held:
			t.row(l.Mutex, "-", "-", "-", "-")
		default:
			t.row(l.Mutex, l.Owner, number(l.Token), millis(l.Transition), number(l.Waiters))
		}
	}
	return nil
}
