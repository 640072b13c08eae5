package commands

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// audit is the log of who did what that matters to those who run the server: a line for each command that the
// table marks as audited, for each failed login and for each denial. All lines are written here.
//
// What anybody can cause is bounded: of failed logins, of denials and of commands that are not for
// administrators, each for itself, a burst is logged and then one a second; a line tells how many before it were not.
type audit struct {
	log                      *slog.Logger
	logins, refusals, others valve
}

// The messages.
const (
	auditCommand = "audit: command"
	auditLogin   = "audit: authentication failed"
	auditDenied  = "audit: permission denied"
)

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
		c.conn.Detach() // whoever reads the log may be slow
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
	c.conn.Detach()
	attrs := append(whoAsked(c), slog.String("denied", denialWords[d.reason].name), slog.String("object", d.object), slog.String("context", where))
	if d.reason == deniedKey {
		attrs = append(attrs, slog.String("mutex", quoteForAudit([]byte(parseKey([]byte(d.object)).mutex))))
	}
	a.log.LogAttrs(context.Background(), slog.LevelWarn, auditDenied, append(attrs, slog.Int("unlogged", missed))...)
}

func whoAsked(c *client) []slog.Attr {
	return []slog.Attr{slog.String("user", c.account.Load().Name()), slog.String("addr", c.conn.RemoteAddr())}
}

// valve lets a burst pass and then one a second.
type valve struct {
	mu     sync.Mutex
	opened time.Time // when the first of the present burst would have passed, one a second
	missed int
}

const valveBurst = 20

// pass reports whether one more may pass, and how many did not since the last that did.
func (v *valve) pass() (open bool, missed int) {
	now := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if full := now.Add(-valveBurst * time.Second); v.opened.Before(full) {
		v.opened = full
	}
	if v.opened.Add(time.Second).After(now) {
		v.missed++
		return false, 0
	}
	v.opened = v.opened.Add(time.Second)
	missed, v.missed = v.missed, 0
	return true, missed
}
