package main

import (
	"context"
	"log/slog"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/cli"
)

// leaseLog is the log of the client in lock and elect. It writes lines for people, and reports each
// event once. It implements slog.Handler.
type leaseLog struct {
	say     func(string, ...any)
	options *redis.Options
	// returned is the lowest level of the logged errors that the client also returns. main reports
	// the returned errors, so leaseLog does not.
	returned slog.LevelVar
}

// noLevel is above each level.
const noLevel slog.Level = math.MaxInt

func (l *leaseLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *leaseLog) Handle(_ context.Context, r slog.Record) error {
	var cause error
	r.Attrs(func(a slog.Attr) bool {
		if err, ok := a.Value.Any().(error); ok {
			cause = err
		}
		return true
	})
	switch {
	case r.Message == "mutex lost": // the Runner reports it with the reason
	case cause == nil:
		l.say("%s", r.Message)
	case r.Level < l.returned.Level():
		l.say("trying again: %v", cli.Explain(l.options, cause))
	}
	return nil
}

// WithAttrs drops the attributes, which leaseLog does not report.
func (l *leaseLog) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l *leaseLog) WithGroup(string) slog.Handler { return l }
