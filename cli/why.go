package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

// Why says what keeps a contender from a mutex.
type Why struct {
	Mutex         string  `json:"mutex" doc:"name"`
	Engine        string  `json:"engine" doc:"engine of the server; empty = the user may not send INFO"`
	Owner         *Tenure `json:"owner" doc:"the object of owner; null = no owner"`
	RecoveryDelay *int64  `json:"recovery_delay_ms" doc:"rest of the recovery delay; null = the user may not send INFO"`

	SharedQueue *bool    `json:"shared_queue" doc:"whether the queue has the waiters of all servers; null = unknown"`
	Waiters     int64    `json:"waiters" doc:"length of the queue"`
	Ahead       []Waiter `json:"ahead" doc:"waiters ahead of the contender, as of queue; at most 10,000"`
	Next        *string  `json:"next" doc:"waiter that gets the mutex next; null = none, or unknown: a polling waiter is skipped if the server cannot notify it"`

	Contender string `json:"contender" doc:"as asked; empty = a new one"`
	Position  int64  `json:"position" doc:"position of the contender; 0 = not in the queue"`
	Owns      bool   `json:"owns" doc:"whether the contender is the owner"`

	FreeIn  *int64 `json:"free_in_ms" doc:"when the lease ends at the latest if the owner does not renew it, and the recovery delay, if known; null = never"`
	YoursIn *int64 `json:"yours_in_ms" doc:"when the contender can have the mutex at the latest if the owner does not renew its lease; null = no limit is known"`

	kind string // of the contender in the queue
}

func whyCommand() *cobra.Command {
	var contender *string
	cmd := mutexCommand("why NAME", "Show why a mutex is not mine yet, and when it can be",
		func(cmd *cobra.Command, c *redis.Client, mutex string) error {
			w, err := why(cmd.Context(), c, mutex, *contender)
			if err != nil {
				return err
			}
			if asJSON(cmd) {
				return printJSON(cmd.OutOrStdout(), w)
			}
			w.print(cmd.OutOrStdout(), c.Options().Addr)
			return nil
		})
	cmd.Long = cmd.Short + `.

It only asks: no contender is added to the queue. On the engines mysql and postgres it knows only the
queue of the server that replies.`
	cmd.Example = "  simba-resp why job --contender worker-7"
	contender = cmd.Flags().String("contender", "", "answer for the contender `ID`; without the flag for a new one")
	_ = cmd.RegisterFlagCompletionFunc("contender", cobra.NoFileCompletions)
	return cmd
}

func why(ctx context.Context, c *redis.Client, mutex, contender string) (Why, error) {
	w := Why{Mutex: mutex, Contender: contender}
	t, err := owner(ctx, c, mutex)
	if err != nil {
		return w, err
	}
	waiters, err := queue(ctx, c, mutex, mostWaiters)
	if err != nil {
		return w, err
	}
	fields, err := info(ctx, c, "simba")
	if err != nil && !errors.As(err, new(redis.Error)) { // a user may ask for mutexes, and not for INFO
		return w, Explain(c.Options(), err)
	}
	if w.Engine = fields["engine"]; w.Engine != "" {
		w.SharedQueue = new(w.Engine != "mysql" && w.Engine != "postgres")
	}
	if ms, err := strconv.ParseInt(fields["recovery_delay_ms"], 10, 64); err == nil {
		w.RecoveryDelay = &ms
	}
	w.judge(t, waiters)
	return w, nil
}

// judge sets the fields that follow from the tenure and the queue.
func (w *Why) judge(t Tenure, waiters []Waiter) {
	w.Waiters = max(t.Waiters, int64(len(waiters)))
	w.Ahead = waiters
	for i, q := range waiters {
		if w.Contender != "" && q.Contender == w.Contender {
			w.Ahead, w.Position, w.kind = waiters[:i], q.Position, q.Kind
			break
		}
	}
	if len(waiters) > 0 && waiters[0].Kind == blocked && w.isShared() {
		w.Next = &waiters[0].Contender
	}
	w.FreeIn = new(int64)
	if t.Held {
		w.Owner = &t
		w.Owns = w.Contender != "" && t.Owner == w.Contender
		w.FreeIn = t.Transition
	}
	if w.RecoveryDelay != nil && w.FreeIn != nil {
		w.FreeIn = new(max(*w.FreeIn, *w.RecoveryDelay))
	}
	if w.first() {
		w.YoursIn = w.FreeIn
	}
	if w.Owns {
		w.Ahead, w.YoursIn = nil, new(int64)
	}
	if w.Ahead == nil {
		w.Ahead = []Waiter{} // [] in JSON
	}
}

// blocked is the kind of a waiter that the server can certainly reach. A polling waiter may not
// subscribe to its own channel, and the queue does not show whether it does.
const blocked = "blocked"

// isShared reports whether the queue has the waiters of all servers. It is false if that is
// unknown.
func (w *Why) isShared() bool { return w.SharedQueue != nil && *w.SharedQueue }

// first reports whether nobody can get the mutex before the contender. The queue must be complete,
// with nobody ahead of the contender. Behind a polling contender there must be nobody either, since
// the server may skip it.
func (w *Why) first() bool {
	switch {
	case !w.isShared() || len(w.Ahead) > 0:
		return false
	case w.Position > 0:
		return w.kind == blocked || w.Waiters == 1
	}
	return w.Waiters == 0
}

// shownAhead is the maximum number of waiters that the text names.
const shownAhead = 10

func (w *Why) print(out io.Writer, addr string) {
	p := printer{out}
	p.state(w)
	p.queue(w, addr)
	p.outlook(w)
}

// printer prints lines.
type printer struct{ out io.Writer }

func (p printer) line(format string, args ...any) {
	fmt.Fprintf(p.out, format+"\n", args...) // the process keeps an error of its output
}

func (p printer) state(w *Why) {
	mutex := Printable(w.Mutex)
	t := w.Owner
	if t == nil {
		p.line("%s has no owner.", mutex)
		return
	}
	p.line("%s is held by %s, token %d.", mutex, Printable(t.Owner), t.Token)
	if t.Since != nil {
		p.line("  since %s (%s)", clock(*t.Since), millis(max(t.Now-*t.Since, 0)))
	}
	if t.Connection != nil {
		p.line("  connection %s", Printable(connectionText(t.Connection)))
	}
	lease := "has no expiry"
	if t.Transition != nil {
		lease = left(t.Transition) + " unless the owner renews it"
	}
	p.line("  its lease %s; it began %s ago", lease, millis(t.Now-t.AcquiredAt))
}

func (p printer) queue(w *Why, addr string) {
	if w.Owns {
		return
	}
	switch {
	case w.Contender == "":
		p.line("Ahead of a new contender: %d.", w.Waiters)
	case w.Position == 0:
		p.line("%s is not in the queue. Ahead of it, if it asks now: %d.", Printable(w.Contender), w.Waiters)
	default:
		p.line("%s is in the queue at position %d. Ahead of it: %d.", Printable(w.Contender), w.Position, len(w.Ahead))
	}
	for i, q := range w.Ahead {
		if i == shownAhead {
			p.line("  … and %d more: simba-resp queue NAME", len(w.Ahead)-i)
			break
		}
		p.line("  %d. %s, %s, waiting for %s", q.Position, Printable(q.Contender), q.Kind, millis(q.Waiting))
	}
	switch {
	case w.SharedQueue == nil:
		p.line("The user may not send INFO. If the engine is mysql or postgres, other servers may have more waiters.")
	case !*w.SharedQueue:
		p.line("On the engine %s this is the queue of %s only. Contenders of other servers may come first.", w.Engine, Printable(addr))
	}
}

// outlook prints when the contender can have the mutex.
func (p printer) outlook(w *Why) {
	who := "A new contender"
	if w.Contender != "" {
		who = Printable(w.Contender)
	}
	if w.RecoveryDelay != nil && *w.RecoveryDelay > 0 {
		p.line("New grants are delayed for %s more: the recovery delay.", millis(*w.RecoveryDelay))
	}
	switch {
	case w.Owns:
		p.line("%s owns it.", who)
	case w.YoursIn != nil && *w.YoursIn == 0:
		p.line("%s can have it now: it need only ask.", who)
	case w.YoursIn != nil && w.Owner == nil:
		p.line("%s can have it in %s at the latest.", who, millis(*w.YoursIn))
	case w.YoursIn != nil:
		p.line("%s can have it in %s at the latest, unless the owner renews its lease.", who, millis(*w.YoursIn))
	case w.FreeIn == nil:
		p.line("There is no latest time: the lease does not end by itself.")
	case w.Owner != nil:
		p.line("It is free in %s at the latest, unless the owner renews its lease.", millis(*w.FreeIn))
	}
	if w.Owns || w.YoursIn != nil {
		return
	}
	switch {
	case len(w.Ahead) == 0 && w.Position > 0 && w.kind != blocked:
		p.line("It may go to another waiter: %s polls.", who)
		p.skips(w)
	case len(w.Ahead) == 0 && w.Owner == nil && w.RecoveryDelay == nil:
		p.line("%s can have it now, unless the server delays new grants: the user may not send INFO.", who)
	case len(w.Ahead) == 0 && w.Owner == nil:
		p.line("%s can have it now, unless a contender of another server comes first.", who)
	case len(w.Ahead) == 0:
	case w.Next != nil:
		p.line("%s is next. It is not known how long the waiters ahead keep it.", Printable(*w.Next))
	case w.isShared():
		p.line("Who is next is not known: %s polls.", Printable(w.Ahead[0].Contender))
		p.skips(w)
	}
}

// skips prints what the server does with a polling waiter that is first in the queue.
func (p printer) skips(w *Why) {
	p.line("The server skips a polling waiter that it cannot notify.")
	if w.Owner == nil {
		p.line("If it has notified one, it keeps the mutex reserved for that waiter during the handoff window.")
	}
}
