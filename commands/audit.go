package commands

import (
	"context"
	"log/slog"
	"strings"
)

// audit writes the audit log: commands of administrators, commands with the flag audited, failed
// logins and denials.
//
// Any client can cause failed logins, denials, and audited commands that are not for
// administrators. Each of these three kinds has a logLimiter.
type audit struct {
	log                      *slog.Logger
	settings                 *settings
	logins, refusals, others logLimiter
}

const (
	auditCommand = "audit: command"
	auditLogin   = "audit: authentication failed"
	auditDenied  = "audit: permission denied"
	auditLeftOut = "audit: left out" // the attribute "of" is the message of the omitted lines
)

func (a *audit) init(log *slog.Logger, settings *settings) {
	a.log, a.settings = log, settings
	a.logins.late = a.leftOut(slog.LevelWarn, auditLogin)
	a.refusals.late = a.leftOut(slog.LevelWarn, auditDenied)
	a.others.late = a.leftOut(slog.LevelInfo, auditCommand)
}

func (a *audit) leftOut(level slog.Level, of string) func(missed int) {
	return func(missed int) {
		a.log.LogAttrs(context.Background(), level, auditLeftOut, slog.String("of", of), slog.Int("unlogged", missed))
	}
}

// close logs how many lines were omitted since the last report. After close, audit logs every line.
func (a *audit) close() {
	for _, v := range []*logLimiter{&a.logins, &a.refusals, &a.others} {
		v.close()
	}
}

// maxAuditText is the largest number of bytes that a line quotes of a client's text.
const maxAuditText = 256

func (a *audit) ended(c *call) {
	e, args, missed := c.entry, c.args, 0
	if !e.has(audited) {
		return
	}
	if e.acl()&(catAdmin|catDangerous) == 0 { // a command for any client, such as SCRIPT FLUSH
		open := false
		if open, missed = a.others.allow(); !open {
			return
		}
	}
	attrs := append(whoAsked(c.account.Name(), c.conn.RemoteAddr()), slog.String("command", e.full))
	if e.keys.first > 0 && e.keys.first < len(args) {
		attrs = append(attrs, slog.String("mutex", quoteForAudit(args[e.keys.first])))
	}
	if words := a.words(e, args); words != "" {
		attrs = append(attrs, slog.String("args", words))
	}
	attrs = append(attrs, slog.Bool("failed", c.err != nil))
	if missed > 0 {
		attrs = append(attrs, slog.Int("unlogged", missed))
	}
	a.log.LogAttrs(context.Background(), slog.LevelInfo, auditCommand, attrs...)
}

// words returns the arguments that a line may show, without the mutex and the arguments
// before it. If an argument of the command may be a password, words returns only the first
// argument, which is never the password. For CONFIG SET it returns the names of known settings. An
// unknown name may be a misplaced password.
func (a *audit) words(e *entry, args [][]byte) string {
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
		case i%2 == 0 && a.settings.find(string(w)) != nil:
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

func (a *audit) denied(user, addr string, d *denial, origin string) {
	open, missed := a.refusals.allow()
	if !open {
		return
	}
	attrs := append(whoAsked(user, addr), slog.String("denied", denialWords[d.reason].name), slog.String("object", d.object), slog.String("context", origin))
	if d.reason == deniedKey {
		attrs = append(attrs, slog.String("mutex", quoteForAudit([]byte(parseKey([]byte(d.object)).Mutex))))
	}
	a.log.LogAttrs(context.Background(), slog.LevelWarn, auditDenied, append(attrs, slog.Int("unlogged", missed))...)
}

func whoAsked(user, addr string) []slog.Attr {
	return []slog.Attr{slog.String("user", user), slog.String("addr", addr)}
}
