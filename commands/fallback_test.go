package commands

import (
	"strings"
	"testing"
)

// Lock libraries send commands of newer servers first. They fall back to scripts only if the error
// has exactly these words.
const (
	unknownWords = "-ERR unknown command"
	syntaxWords  = "-ERR syntax error"
)

var newerThanRedis7 = []struct{ command, words string }{
	{"DIGEST billing:1", unknownWords},
	{"MSETEX 1 billing:1 v", unknownWords},
	{"SET billing:1 v IFNE v", syntaxWords},
	{"SET billing:1 v ifdeq v PX 1000", syntaxWords},
	{"SET billing:1 v PX 1000 IFDNE v", syntaxWords},
}

// fallback has the ways in which a command reaches a server. Each function returns the replies to
// the command.
var fallback = map[string]func(p *peer, command string) string{
	"alone":                 func(p *peer, command string) string { return p.do(command) },
	"while the key is held": func(p *peer, command string) string { p.do("SET billing:1 v"); return p.do(command) },
	"as alice":              func(p *peer, command string) string { p.do("AUTH alice pw"); return p.do(command) },
	"in a pipeline":         func(p *peer, command string) string { return inPipeline(p, command) },
	"in MULTI":              func(p *peer, command string) string { return queuedAndRun(p, command) },
	"as alice in MULTI":     func(p *peer, command string) string { p.do("AUTH alice pw"); return queuedAndRun(p, command) },
}

func inPipeline(p *peer, command string) string {
	p.send("PING", command, "PING")
	p.reply()
	got := p.reply()
	p.reply()
	return got
}

func queuedAndRun(p *peer, command string) string {
	p.do("MULTI")
	return p.do(command) + p.do("EXEC")
}

func TestCommandsOfNewerServersThatAreNotServedGetTheErrorsOfRedis7(t *testing.T) {
	redis := realRedis(t, "--aclfile", newUsersFile(t, sharedUsers...).path)
	for name, send := range fallback {
		for _, tt := range newerThanRedis7 {
			ours, theirs := newLockSiteOf(t, newUsersFile(t, sharedUsers...).open()).dial(), redis(t)
			theirs.do("FLUSHALL")
			got, want := send(ours, tt.command), send(theirs, tt.command)
			if got != want {
				t.Errorf("%s, %s:\n  ours %q\ntheirs %q", name, tt.command, got, want)
			}
			if strings.Contains(name, "MULTI") && tt.words == syntaxWords {
				tt.words = "+QUEUED\r\n*1\r\n" + syntaxWords // EXEC has the error
			}
			if !strings.HasPrefix(got, tt.words) {
				t.Errorf("%s, %s: the reply is %q, want %s", name, tt.command, got, tt.words)
			}
		}
	}
}
