package main

import (
	"bytes"
	"io"
	"log/slog"
)

// logs is where the server says what happens, a line each.
type logs struct {
	*slog.Logger                // of what is as grave as level, or graver
	audit        *slog.Logger   // of what is audited, whatever the level: else who may set that could do the rest unseen
	level        *slog.LevelVar // of Logger
	out          *logBuffer     // of both
}

// lossMessages say which lines are missing. They are written whatever the level.
var lossMessages = [lineKinds]string{
	plainLine: "log lines were dropped while the log's reader did not keep up",
	auditLine: "audit lines were dropped while the log's reader did not keep up",
}

func newLogs(cfg *config, out *logBuffer) *logs {
	level := new(slog.LevelVar)
	level.Set(cfg.level())
	logger := func(w io.Writer, level slog.Leveler) *slog.Logger {
		options := &slog.HandlerOptions{Level: level}
		if cfg.LogFormat == logJSON {
			return slog.New(slog.NewJSONHandler(w, options))
		}
		return slog.New(slog.NewTextHandler(w, options))
	}
	out.setReport(func(kind lineKind, lost int) []byte {
		var line bytes.Buffer
		logger(&line, slog.LevelDebug).Warn(lossMessages[kind], "lines", lost)
		return line.Bytes()
	})
	return &logs{Logger: logger(out, level), audit: logger(auditLog{out}, slog.LevelDebug), level: level, out: out}
}
