package commands

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// audit is the log of who did what that matters to those who run the server: a line for each command of
// administrators and each that the table marks besides, for each failed login and for each denial. All lines are
// written here.
//
// What anybody can cause is bounded: of failed logins, of denials and of commands that are not for
// administrators, each for itself, a burst is logged and then one a second. What is left out is counted by the
// next line, or if none comes soon, by one of its own: so that all of them add up.
type audit struct {
	log                      *slog.Logger
	logins, refusals, others valve
}

// The messages.
const (
	auditCommand = "audit: command"
	auditLogin   = "audit: authentication failed"
	auditDenied  = "audit: permission denied"
	auditLeftOut = "audit: left out" // key of: the message that was
)

func (a *audit) init(log *slog.Logger) {
	a.log = log
	a.logins.late = a.leftOut(slog.LevelWarn, auditLogin)
	a.refusals.late = a.leftOut(slog.LevelWarn, auditDenied)
	a.others.late = a.leftOut(slog.LevelInfo, auditCommand)
}

func (a *audit) leftOut(level slog.Level, of string) func(missed int) {
	return func(missed int) {
		a.log.LogAttrs(context.Background(), level, auditLeftOut, slog.String("of", of), slog.Int("unlogged", missed))
	}
}

// close logs what is left out so far. What comes later is logged each, since nobody would count it.
func (a *audit) close() {
	for _, v := range []*valve{&a.logins, &a.refusals, &a.others} {
		v.close()
	}
}

// maxAuditText bounds what a line quotes of a client's words.
const maxAuditText = 256

// command logs a command that has run.
func (a *audit) command(c *client, e *entry, args [][]byte, failed bool) {
	missed := 0
	if e.acl()&(catAdmin|catDangerous) == 0 { // such as SCRIPT FLUSH
		open := false
		if open, missed = a.others.pass(); !open {
			return
		}
	}
	attrs := append(whoAsked(c), slog.String("command", e.full))
	if e.keys.first > 0 && e.keys.first < len(args) {
		attrs = append(attrs, slog.String("mutex", quoteForAudit(args[e.keys.first])))
	}
	if words := auditedWords(c.x, e, args); words != "" {
		attrs = append(attrs, slog.String("args", words))
	}
	attrs = append(attrs, slog.Bool("failed", failed))
	if missed > 0 {
		attrs = append(attrs, slog.Int("unlogged", missed))
	}
	a.log.LogAttrs(context.Background(), slog.LevelInfo, auditCommand, attrs...)
}

// auditedWords are the arguments after the mutex, or after the name of a command without one. Of a command that
// may hold a password they are the first, which is none, or of CONFIG SET the settings that there are: what is
// none may be a value that has slipped.
func auditedWords(x *Commands, e *entry, args [][]byte) string {
	first := max(1, e.keys.first+1)
	if e.container != nil {
		first = max(2, first)
	}
	args = args[min(first, len(args)):]
	var words []string
	for i, w := range args {
		switch {
		case !e.has(secret):
			words = append(words, string(w))
		case e.full != "config|set":
			if i == 0 {
				words = append(words, string(w))
			}
		case i%2 == 0 && findSetting(x.settings, strings.ToLower(string(w))) != nil:
			words = append(words, string(w))
		}
	}
	return quoteForAudit([]byte(strings.Join(words, " ")))
}

func quoteForAudit(b []byte) string { return string(cutArgument(b, maxAuditText)) }

// failedLogin logs a name and a password that do not fit, without the password.
func (a *audit) failedLogin(c *client, name []byte) {
	if open, missed := a.logins.pass(); open {
		a.log.LogAttrs(context.Background(), slog.LevelWarn, auditLogin,
			slog.String("user", quoteForAudit(name)), slog.String("addr", c.conn.RemoteAddr()), slog.Int("unlogged", missed))
	}
}

// denied logs a denial.
func (a *audit) denied(c *client, d *denial, where string) {
	open, missed := a.refusals.pass()
	if !open {
		return
	}
	attrs := append(whoAsked(c), slog.String("denied", denialWords[d.reason].name), slog.String("object", d.object), slog.String("context", where))
	if d.reason == deniedKey {
		attrs = append(attrs, slog.String("mutex", quoteForAudit([]byte(parseKey([]byte(d.object)).Mutex))))
	}
	a.log.LogAttrs(context.Background(), slog.LevelWarn, auditDenied, append(attrs, slog.Int("unlogged", missed))...)
}

func whoAsked(c *client) []slog.Attr {
	return []slog.Attr{slog.String("user", c.account.Load().Name()), slog.String("addr", c.conn.RemoteAddr())}
}

// valve lets a burst pass and then one a second. What it keeps back it counts: the next that passes is told how
// many, or late is, if for a second none comes that could pass.
type valve struct {
	late func(missed int) // set once; called by a timer, or by close

	mu     sync.Mutex // protects the rest
	opened time.Time  // when the first of the present burst would have passed, one a second
	missed int
	closed bool
	timer  *time.Timer    // runs while something was missed
	timers sync.WaitGroup // those that will call overdue, or do
}

const (
	valveBurst = 20
	valvePause = time.Second // between two that pass
)

// pass reports whether one more may pass, and how many did not since the last that did.
func (v *valve) pass() (open bool, missed int) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if full := now.Add(-valveBurst * valvePause); v.opened.Before(full) {
		v.opened = full
	}
	if opens := v.opened.Add(valvePause); opens.After(now) && !v.closed {
		if v.missed++; v.missed == 1 {
			v.timers.Add(1)
			v.timer = time.AfterFunc(opens.Add(valvePause).Sub(now), v.overdue)
		}
		return false, 0
	}
	return true, v.takeLocked()
}

// takeLocked has one pass, and returns how many did not before it.
func (v *valve) takeLocked() (missed int) {
	v.opened = v.opened.Add(valvePause)
	missed, v.missed = v.missed, 0
	if v.timer != nil && v.timer.Stop() {
		v.timers.Done()
	}
	return missed
}

// overdue is called by the timer.
func (v *valve) overdue() {
	defer v.timers.Done()
	v.tellMissed()
}

func (v *valve) tellMissed() {
	v.mu.Lock()
	missed := 0
	if v.missed > 0 { // else one came at the same moment and was told
		missed = v.takeLocked()
	}
	v.mu.Unlock()
	if missed > 0 {
		v.late(missed)
	}
}

// close tells what was missed and has everything pass from now on.
func (v *valve) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.tellMissed()
	v.timers.Wait()
}
