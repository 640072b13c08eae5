package commands

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// logbook keeps what is logged, a line each, without the time.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logbook) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// lines returns what was logged so far, and forgets it.
func (b *logbook) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return strings.FieldsFunc(b.text.String(), func(r rune) bool { return r == '\n' })
}

func withLog(t *testing.T, test func(t *testing.T, s *site, log *logbook)) {
	synctest.Test(t, func(t *testing.T) {
		log := new(logbook)
		test(t, newSite(t, Config{Users: newUsersFile(t, team...).open(), Logger: log.logger(), Shutdown: func() {}}), log)
	})
}

func TestWhatMattersLeavesALine(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, log *logbook) {
		s.dial() // so that ids and addresses are not by chance those of the test's
		p := s.dialFrom("192.0.2.1:1000")
		p.expect("AUTH boss pw", ok)
		const who = "user=boss addr=192.0.2.1:1000 "
		for command, want := range map[string]string{
			`SIMBA.BREAK m REASON "it hangs"`:      `level=INFO msg="audit: command" ` + who + `command=simba.break mutex=m args="REASON it hangs" failed=false`,
			"CONFIG SET slowlog-max-len 77":        `level=INFO msg="audit: command" ` + who + `command=config|set args=slowlog-max-len failed=false`,
			"CONFIG SET nonsense secret":           `level=INFO msg="audit: command" ` + who + `command=config|set failed=true`,
			"CONFIG SET slowlog-max-len my secret": `level=INFO msg="audit: command" ` + who + `command=config|set args=slowlog-max-len failed=true`,
			"CLIENT KILL ID 999":                   `level=INFO msg="audit: command" ` + who + `command=client|kill args="ID 999" failed=false`,
			"ACL LOAD":                             `level=INFO msg="audit: command" ` + who + `command=acl|load failed=false`,
			"ACL SETUSER x >other >secret":         `level=INFO msg="audit: command" ` + who + `command=acl|setuser args=x failed=true`,
			"FLUSHALL":                             `level=INFO msg="audit: command" ` + who + `command=flushall failed=true`,
			"SCRIPT FLUSH":                         `level=INFO msg="audit: command" ` + who + `command=script|flush failed=true`,
			"SLOWLOG RESET":                        `level=INFO msg="audit: command" ` + who + `command=slowlog|reset failed=false`,
		} {
			p.do(command)
			synctest.Wait()
			if got := log.lines(); len(got) != 1 || got[0] != want {
				t.Errorf("%s:\n got %q\nwant %q", command, got, want)
			}
		}
		p.expect("AUTH boss secret", wrongPass)
		if got, want := log.lines(), `level=WARN msg="audit: authentication failed" user=boss addr=192.0.2.1:1000 unlogged=0`; len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
		p.expect("AUTH billing pw", ok)
		p.expect("SIMBA.OWNER other", noKey)
		if got, want := log.lines(), `level=WARN msg="audit: permission denied" user=billing addr=192.0.2.1:1000 denied=key object=other context=toplevel mutex=other unlogged=0`; len(got) != 1 || got[0] != want {
			t.Errorf("got %q, want %q", got, want)
		}
		p.do("SIMBA.OWNER billing:1")
		p.do("CLIENT ID")
		if got := log.lines(); len(got) != 0 {
			t.Errorf("daily work is logged: %q", got)
		}
	})
}

func TestNobodyCanFloodTheLog(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, log *logbook) {
		p := s.as("billing")
		for range 1000 {
			p.expect("FLUSHALL", noCommand("flushall"))
		}
		if got := log.lines(); len(got) != valveBurst {
			t.Errorf("%d lines of 1000 denials, want %d", len(got), valveBurst)
		}
		p.expect("AUTH boss guess", wrongPass)
		if got := log.lines(); len(got) != 1 {
			t.Errorf("denials keep failed logins out of the log: %q", got)
		}
		time.Sleep(10 * time.Second)
		for range 1000 {
			p.expect("FLUSHALL", noCommand("flushall"))
		}
		if got := log.lines(); len(got) != 10 || !strings.HasSuffix(got[0], " unlogged=980") || !strings.HasSuffix(got[1], " unlogged=0") {
			t.Errorf("after 10 s: %d lines, the first %q", len(got), got[:min(2, len(got))])
		}
		if got := s.dial().do("INFO stats"); !strings.Contains(got, "acl_access_denied_cmd:2000\r\n") || !strings.Contains(got, "acl_access_denied_auth:1\r\n") {
			t.Errorf("INFO does not count them: %q", got)
		}
	})
}

func TestTheACLLogJoinsWhatIsAlikeAndIsBounded(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, _ *logbook) {
		admin, p := s.dial(), s.as("billing")
		for range 3 {
			p.expect("FLUSHALL", noCommand("flushall"))
		}
		time.Sleep(1500 * time.Millisecond)
		p.expect("MULTI", ok)
		p.expect("SIMBA.OWNER other", noKey)
		if got := admin.do("ACL LOG"); !strings.HasPrefix(got, "*2\r\n") || !strings.Contains(got, bulk("count")+":3\r\n"+bulk("reason")+bulk("command")+bulk("context")+bulk("toplevel")+bulk("object")+bulk("flushall")+bulk("username")+bulk("billing")+bulk("age-seconds")+bulk("1.5")) ||
			!strings.Contains(got, bulk("reason")+bulk("key")+bulk("context")+bulk("multi")+bulk("object")+bulk("other")) {
			t.Errorf("%q", got)
		}
		time.Sleep(aclLogWindow)
		p.expect("FLUSHALL", noCommand("flushall"))
		if got := admin.do("ACL LOG"); !strings.HasPrefix(got, "*3\r\n") {
			t.Errorf("%q", got)
		}
		for i := range 2 * maxACLLog {
			p.do("SIMBA.OWNER other" + decimal(int64(i)))
		}
		if got := admin.do("ACL LOG 100000"); !strings.HasPrefix(got, "*128\r\n") {
			t.Errorf("%.20q", got)
		}
		admin.expect("ACL LOG RESET", ok)
		admin.expect("ACL LOG", "*0\r\n")
	})
}

func TestWhoIsNoAdministratorCannotFloodTheLogByCommands(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, log *logbook) {
		p := s.as("billing")
		for range 1000 {
			p.do("SCRIPT FLUSH")
		}
		if n := len(log.lines()); n != valveBurst {
			t.Errorf("1000 of SCRIPT FLUSH left %d lines, want %d", n, valveBurst)
		}
		time.Sleep(time.Second)
		p.do("SCRIPT FLUSH")
		if got := log.lines(); len(got) != 1 || !strings.HasSuffix(got[0], " unlogged=980") {
			t.Errorf("a second later: %q", got)
		}
	})
}
