package cluster

import (
	"fmt"
	"log/slog"
)

// raftLogger passes what raft logs to slog. Its Info is Debug here.
type raftLogger struct{ *slog.Logger }

func (l raftLogger) Debug(v ...any)            { l.Logger.Debug(fmt.Sprint(v...)) }
func (l raftLogger) Debugf(f string, v ...any) { l.Logger.Debug(fmt.Sprintf(f, v...)) }
func (l raftLogger) Info(v ...any)             { l.Logger.Debug(fmt.Sprint(v...)) }
func (l raftLogger) Infof(f string, v ...any)  { l.Logger.Debug(fmt.Sprintf(f, v...)) }
func (l raftLogger) Warning(v ...any)          { l.Logger.Warn(fmt.Sprint(v...)) }
func (l raftLogger) Warningf(f string, v ...any) {
	l.Logger.Warn(fmt.Sprintf(f, v...))
}
func (l raftLogger) Error(v ...any)            { l.Logger.Error(fmt.Sprint(v...)) }
func (l raftLogger) Errorf(f string, v ...any) { l.Logger.Error(fmt.Sprintf(f, v...)) }
func (l raftLogger) Fatal(v ...any)            { panic(fmt.Sprint(v...)) }
func (l raftLogger) Fatalf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
func (l raftLogger) Panic(v ...any)            { panic(fmt.Sprint(v...)) }
func (l raftLogger) Panicf(f string, v ...any) { panic(fmt.Sprintf(f, v...)) }
