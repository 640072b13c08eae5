package commands

import (
	"context"
	"log/slog"
	"strings"
)

// audit logs the actions that matter to an operator: commands of administrators, commands with the
// flag audited, failed logins and denials. It is the only place that writes these lines.
//
// Any client can cause failed logins, denials and audited commands that are not for administrators.
// For each of these three kinds, audit logs a burst of lines and then one line a second. The next
// line of the kind reports how many lines were left out. If no line of the kind follows soon, a
// separate line reports the number.
type audit struct {
	log                      *slog.Logger
	logins, refusals, others logLimiter
}

// The messages.
const (
	auditCommand = "audit: command"
	auditLogin   = "audit: authentication failed"
	auditDenied  = "audit: permission denied"
	auditLeftOut = "audit: left out" // the key "of" has the message of the omitted lines
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

// close logs how many lines were left out since the last report. After close, audit logs every
// line.
func (a *audit) close() {
	for _, v := range []*logLimiter{&a.logins, &a.refusals, &a.others} {
		v.close()
	}
}

// maxAuditText is how many bytes of a client's text a line quotes at most.
const maxAuditText = 256

// command logs a command that has run.
func (a *audit) command(c *client, e *entry, args [][]byte, failed bool) {
	missed := 0
	if e.acl()&(catAdmin|catDangerous) == 0 { // a command for any client, such as SCRIPT FLUSH
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

// auditedWords returns the arguments of a command after the mutex, or all if it has no mutex. Of a
// command that may hold a password it returns only the first argument, which is not the password.
// Of CONFIG SET it returns only the names of known settings, because an unknown name may be a
// password in the wrong position.
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

// failedLogin logs the name of a failed login, without the password.
func (a *audit) failedLogin(name []byte, addr string) {
	if open, missed := a.logins.allow(); open {
		a.log.LogAttrs(context.Background(), slog.LevelWarn, auditLogin,
			slog.String("user", quoteForAudit(name)), slog.String("addr", addr), slog.Int("unlogged", missed))
	}
}

// denied logs a denial. who describes the sender of the request, and where is the context as in ACL
// LOG.
func (a *audit) denied(who []slog.Attr, d *denial, where string) {
	open, missed := a.refusals.allow()
	if !open {
		return
	}
	attrs := append(who, slog.String("denied", denialWords[d.reason].name), slog.String("object", d.object), slog.String("context", where))
	if d.reason == deniedKey {
		attrs = append(attrs, slog.String("mutex", quoteForAudit([]byte(parseKey([]byte(d.object)).Mutex))))
	}
	a.log.LogAttrs(context.Background(), slog.LevelWarn, auditDenied, append(attrs, slog.Int("unlogged", missed))...)
}

func whoAsked(c *client) []slog.Attr {
	return []slog.Attr{slog.String("user", c.account.Load().Name()), slog.String("addr", c.conn.RemoteAddr())}
}
