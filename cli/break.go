package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Broken is the output of break.
type Broken struct {
	Mutex  string `json:"mutex" doc:"name"`
	Broken bool   `json:"broken" doc:"whether a tenure was broken"`
	Owner  string `json:"owner" doc:"its owner"`
	Token  int64  `json:"token" doc:"its fencing token; 0 = none was broken"`
}

func breakCommand() *cobra.Command {
	var yes *bool
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
			b := Broken{Mutex: mutex}
			if t.Held {
				if b, err = breakTenure(cmd, c, t, *reason); err != nil {
					return err
				}
				if b.Broken && b.Token != t.Token && !*yes {
					fmt.Fprintf(cmd.ErrOrStderr(), "the tenure of %s, token %d, had ended just before\n", Printable(t.Owner), t.Token)
				}
			}
			did := fmt.Sprintf("broke the tenure of %s on %s, token %d", Printable(b.Owner), Printable(mutex), b.Token)
			if asJSON(cmd) {
				err = printJSON(cmd.OutOrStdout(), b)
			} else if b.Broken {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), did)
			}
			switch {
			case err == nil && !b.Broken:
				return no("%s has no owner", Printable(mutex))
			case err != nil && b.Broken:
				return fmt.Errorf("%s, but the output is lost: %w", did, err)
			}
			return err
		})
	cmd.Long = cmd.Short + ` to its next waiter.

The old owner may still work: stop it first, or let the resource check the fencing token. break asks
for confirmation on a terminal. It breaks the tenure of that moment, and prints whose it was. Exit
code 1: the mutex has no owner, or the answer was no.`
	yes = cmd.Flags().Bool("yes", false, "do not ask for confirmation")
	reason = cmd.Flags().String("reason", "", "`TEXT` for the history of the mutex")
	return cmd
}

// breakTenure sends BREAK, which ends the tenure t, or a later one if t has just ended. breakTenure
// reads the history to find out which. If the user may not read it, breakTenure assumes t.
func breakTenure(cmd *cobra.Command, c *redis.Client, t Tenure, reason string) (Broken, error) {
	b := Broken{Mutex: t.Mutex}
	send := []any{"SIMBA.BREAK", t.Mutex}
	if reason != "" {
		send = append(send, "REASON", reason)
	}
	signal.Ignore(syscall.SIGPIPE) // else a closed pipe ends break before it says what it did
	n, err := c.Do(cmd.Context(), send...).Int()
	if err != nil && !errors.As(err, new(redis.Error)) {
		return b, &ExitError{Code: exitUnavailable, Err: fmt.Errorf("%w; the tenure may have ended: look at it before you repeat this", Explain(c.Options(), err))}
	}
	if err != nil || n == 0 {
		return b, Explain(c.Options(), err)
	}
	b.Broken, b.Owner, b.Token = true, t.Owner, t.Token
	events, _ := history(cmd.Context(), c, t.Mutex, 100)
	events = slices.DeleteFunc(events, func(e Event) bool {
		return e.Event != "broken" || e.Reason != reason || e.Token < t.Token
	})
	if len(events) > 0 {
		// Another client may have broken a later tenure with the same reason.
		first := slices.MinFunc(events, func(a, b Event) int { return cmp.Compare(a.Token, b.Token) })
		b.Owner, b.Token = first.Owner, first.Token
	}
	return b, nil
}

// confirm asks the person at the terminal. It returns an error unless the answer is yes and t has
// not been replaced by another tenure.
func confirm(cmd *cobra.Command, c *redis.Client, t Tenure) error {
	in, ok := cmd.InOrStdin().(*os.File)
	if !ok || !term.IsTerminal(int(in.Fd())) {
		return Usagef("standard input is no terminal; use --yes to break without a question")
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
