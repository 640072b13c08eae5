package commands

import (
	"context"
	"log/slog"
	"strings"
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
	logins, refusals, others logLimiter
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
	for _, v := range []*logLimiter{&a.logins, &a.refusals, &a.others} {
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
		if open, missed = a.others.allow(); !open {
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
	if open, missed := a.logins.allow(); open {
		a.log.LogAttrs(context.Background(), slog.LevelWarn, auditLogin,
			slog.String("user", quoteForAudit(name)), slog.String("addr", c.conn.RemoteAddr()), slog.Int("unlogged", missed))
	}
}

// denied logs a denial.
func (a *audit) denied(c *client, d *denial, where string) {
	open, missed := a.refusals.allow()
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
