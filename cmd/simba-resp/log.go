package main

import (
	"bytes"
	"io"
	"log/slog"
)

// logs holds the loggers of the server.
type logs struct {
	*slog.Logger // lines of at least level
	// audit logs audit lines at any level. A user who may set the level must not be able to hide
	// commands.
	audit *slog.Logger
	level *slog.LevelVar // of Logger
	out   *logBuffer     // of both
}

// lossMessages report lost lines, at any level.
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
