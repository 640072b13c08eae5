package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// broken is the output of break. Owner and Token are those just before it.
type broken struct {
	Mutex  string `json:"mutex"`
	Broken bool   `json:"broken"`
	Owner  string `json:"owner"`
	Token  int64  `json:"token"`
}

func breakCommand() *cobra.Command {
	var asJSON, yes *bool
	var reason *string
	cmd := mutexCommand("break NAME", "End the tenure of any owner, and hand the mutex off",
		func(cmd *cobra.Command, c *redis.Client, mutex string) error {
			t, err := owner(cmd.Context(), c, mutex)
			if err != nil {
				return err
			}
			if t.Held && !*yes {
				if err := confirm(cmd, c, t); err != nil {
					return err
				}
			}
			b := broken{Mutex: t.Mutex, Owner: t.Owner, Token: t.Token}
			if t.Held {
				if b.Broken, err = breakTenure(cmd, c, t.Mutex, *reason); err != nil {
					return err
				}
			}
			if *asJSON {
				err = printJSON(cmd.OutOrStdout(), b)
			} else if b.Broken {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "broke the tenure of %s on %s, token %d\n", Printable(t.Owner), Printable(t.Mutex), t.Token)
			}
			if err == nil && !b.Broken {
				err = no("%s has no owner", Printable(t.Mutex))
			}
			return err
		})
	cmd.Long = cmd.Short + ` to its next waiter.

The old owner may still work: stop it first, or let the resource check the fencing token. break asks
for confirmation on a terminal. Exit code 1: the mutex has no owner, or the answer was no.`
	yes = cmd.Flags().Bool("yes", false, "do not ask")
	reason = cmd.Flags().String("reason", "", "`TEXT` for the history of the mutex")
	asJSON = addJSON(cmd)
	return cmd
}

// breakTenure sends BREAK and reports whether it ended a tenure.
func breakTenure(cmd *cobra.Command, c *redis.Client, mutex, reason string) (bool, error) {
	send := []any{"SIMBA.BREAK", mutex}
	if reason != "" {
		send = append(send, "REASON", reason)
	}
	n, err := c.Do(cmd.Context(), send...).Int()
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) {
		return false, &coded{exitUnavailable, fmt.Errorf("%w; the tenure may have ended: look at it before you repeat this", Explain(c.Options(), err))}
	}
	return n == 1, Explain(c.Options(), err)
}

// confirm asks the person at the terminal. It returns an error unless the answer is yes and the
// mutex still has that tenure.
func confirm(cmd *cobra.Command, c *redis.Client, t Tenure) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return usagef("standard input is no terminal; use --yes to break without a question")
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is held by %s, token %d. Break it? [y/N] ", Printable(t.Mutex), Printable(t.Owner), t.Token)
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if a := strings.ToLower(strings.TrimSpace(answer)); a != "y" && a != "yes" {
		return no("not broken")
	}
	now, err := owner(cmd.Context(), c, t.Mutex)
	switch {
	case err != nil:
		return err
	case now.Held && now.Token != t.Token:
		return no("not broken: %s has a new tenure, of %s with token %d", Printable(t.Mutex), Printable(now.Owner), now.Token)
	}
	return nil
}
