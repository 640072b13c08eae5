package cluster

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
)

// raftLogger passes what raft logs to slog. Its Info is Debug here. When raft would panic, for example
// because a member has lost entries that it had acknowledged, raftLogger ends the goroutine.
type raftLogger struct {
	*slog.Logger
	fatal func(error)
}

func (l raftLogger) Debug(v ...any)              { l.Logger.Debug(fmt.Sprint(v...)) }
func (l raftLogger) Debugf(f string, v ...any)   { l.Logger.Debug(fmt.Sprintf(f, v...)) }
func (l raftLogger) Info(v ...any)               { l.Logger.Debug(fmt.Sprint(v...)) }
func (l raftLogger) Infof(f string, v ...any)    { l.Logger.Debug(fmt.Sprintf(f, v...)) }
func (l raftLogger) Warning(v ...any)            { l.Logger.Warn(fmt.Sprint(v...)) }
func (l raftLogger) Warningf(f string, v ...any) { l.Logger.Warn(fmt.Sprintf(f, v...)) }
func (l raftLogger) Error(v ...any)              { l.Logger.Error(fmt.Sprint(v...)) }
func (l raftLogger) Errorf(f string, v ...any)   { l.Logger.Error(fmt.Sprintf(f, v...)) }
func (l raftLogger) Fatal(v ...any)              { l.end(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(f string, v ...any)   { l.end(fmt.Sprintf(f, v...)) }
func (l raftLogger) Panic(v ...any)              { l.end(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(f string, v ...any)   { l.end(fmt.Sprintf(f, v...)) }

func (l raftLogger) end(why string) {
	l.fatal(errors.New("raft: " + why))
	runtime.Goexit()
}
