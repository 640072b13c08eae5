package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
)

const (
	// watchPing is the silence after which watch sends PING.
	watchPing = 5 * time.Second
	// The delays between attempts to reconnect.
	firstRetry   = 100 * time.Millisecond
	longestRetry = 2 * time.Second
)

func watchCommand() *cobra.Command {
	cmd := mutexCommand("watch NAME|PATTERN", "Print the events of mutexes as they happen",
		func(cmd *cobra.Command, c *redis.Client, mutex string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM}, signal.Ignored)...)
			defer stop()
			w := watcher{cmd: cmd, client: c, channel: eventPrefix + mutex + "}"}
			w.pattern = strings.ContainsAny(mutex, `*?[\`)
			err := w.run(ctx)
			if ctx.Err() != nil {
				return nil
			}
			return err
		})
	cmd.Long = cmd.Short + `, one a line.

A PATTERN is a glob: * ? [a-z], and \ before a literal character. Quote it in a shell. To watch
a PATTERN, a user needs a rule for channels, such as &*. After an outage watch connects again. It
does not print the events in between, and a line on standard error says so. Ctrl-C ends it with exit
code 0.`
	cmd.Example = "  simba-resp watch job\n  simba-resp watch 'billing:*' --json"
	return cmd
}

// eventPrefix begins the name of a channel with the events of a mutex, or the glob of such channels.
const eventPrefix = "simba-events:{"

// watcher prints the events on a channel.
type watcher struct {
	cmd     *cobra.Command
	client  *redis.Client
	channel string
	pattern bool // the channel is a glob
}

// run prints events until ctx ends, the server refuses the subscription, or the output fails. If
// the connection fails, run reconnects.
func (w *watcher) run(ctx context.Context) error {
	delay := firstRetry
	for down := false; ; {
		err := w.subscribed(ctx, func() {
			if down {
				w.note("connected again; events meanwhile are not shown")
			} else {
				w.note("watching " + Printable(w.channel))
			}
			down, delay = false, firstRetry
		})
		var refused redis.Error
		if ctx.Err() != nil || errors.As(err, &refused) || !errors.As(err, new(*ExitError)) { // an error of the output
			return err
		}
		if !down {
			w.note("disconnected, trying again: " + err.Error())
		}
		down = true
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
		}
		delay = min(2*delay, longestRetry)
	}
}

// note prints a line for people to standard error.
func (w *watcher) note(text string) { fmt.Fprintln(w.cmd.ErrOrStderr(), "#", text) }

// subscribed connects, and prints events until the connection fails. It calls ready when the server
// has confirmed the subscription. Only an error of the connection is an ExitError.
func (w *watcher) subscribed(ctx context.Context, ready func()) error {
	ps := w.client.Subscribe(ctx)
	defer ps.Close()
	defer context.AfterFunc(ctx, func() { ps.Close() })() // ends a pending read
	subscribe := ps.Subscribe
	if w.pattern {
		subscribe = ps.PSubscribe
	}
	if err := subscribe(ctx, w.channel); err != nil {
		return Explain(w.client.Options(), err)
	}
	for asked := false; ; {
		v, err := ps.ReceiveTimeout(ctx, watchPing)
		var timeout net.Error
		switch {
		case errors.As(err, &timeout) && timeout.Timeout() && !asked:
			asked = true
			err = ps.Ping(ctx)
		case err == nil:
			asked = false
		}
		if err != nil {
			return Explain(w.client.Options(), err)
		}
		switch v := v.(type) {
		case *redis.Subscription:
			ready()
		case *redis.Message:
			if err := w.print(v); err != nil {
				return err
			}
		}
	}
}

// print prints a message. It takes the name of the mutex from the channel, which has the exact
// bytes. Clients may publish other messages on the channel: print shows their text.
func (w *watcher) print(m *redis.Message) error {
	out := w.cmd.OutOrStdout()
	mutex := strings.TrimSuffix(strings.TrimPrefix(m.Channel, eventPrefix), "}")
	var e Event
	if err := json.Unmarshal([]byte(m.Payload), &e); err != nil {
		w.note(fmt.Sprintf("not an event of %s: %s", Printable(mutex), Printable(m.Payload)))
		return nil
	}
	e.Mutex = mutex
	if asJSON(w.cmd) {
		return printJSON(out, e)
	}
	line := fmt.Sprintf("%s  %-8s  %s  %s", clock(e.At), Printable(e.Event), Printable(e.Mutex), Printable(e.Owner))
	if e.Token != 0 {
		line += fmt.Sprintf("  token %d", e.Token)
	}
	if e.Reason != "" {
		line += "  (" + Printable(e.Reason) + ")"
	}
	_, err := fmt.Fprintln(out, line)
	return err
}
