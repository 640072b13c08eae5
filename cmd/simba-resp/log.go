package main

import (
	"context"
	"io"
	"log/slog"
)

// logs is where the server says what happens, a line each.
type logs struct {
	*slog.Logger                // of what is as grave as level, or graver
	audit        *slog.Logger   // of what is audited, whatever the level: else who may set that could do the rest unseen
	level        *slog.LevelVar // of Logger
}

func newLogs(cfg *config, w io.Writer) *logs {
	level := new(slog.LevelVar)
	level.Set(cfg.level())
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	lines := slog.Handler(slog.NewTextHandler(w, all))
	if cfg.LogFormat == logJSON {
		lines = slog.NewJSONHandler(w, all)
	}
	return &logs{Logger: slog.New(threshold{lines, level}), audit: slog.New(lines), level: level}
}

// threshold passes on what is as grave as level, or graver. Handlers can do that by themselves, but then not on the
// same lines for two loggers: each would write with a lock of its own.
type threshold struct {
	slog.Handler
	level slog.Leveler
}

func (h threshold) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level.Level() }

func (h threshold) WithAttrs(attrs []slog.Attr) slog.Handler {
	return threshold{h.Handler.WithAttrs(attrs), h.level}
}

func (h threshold) WithGroup(name string) slog.Handler {
	return threshold{h.Handler.WithGroup(name), h.level}
}
