package commands

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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

// lines returns the lines since its last call.
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

func TestAuditLogsLoginsDenialsAndAdministration(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, log *logbook) {
		s.dial() // so that p is not the first connection, and its id is not 1
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
			"CONFIG GET maxmemory":                 `level=INFO msg="audit: command" ` + who + `command=config|get args=maxmemory failed=false`,
			"CLIENT UNBLOCK 999":                   `level=INFO msg="audit: command" ` + who + `command=client|unblock args=999 failed=false`,
			"ACL GETUSER billing":                  `level=INFO msg="audit: command" ` + who + `command=acl|getuser args=billing failed=false`,
			"ACL DRYRUN billing AUTH boss secret":  `level=INFO msg="audit: command" ` + who + `command=acl|dryrun args=billing failed=false`,
			"ROLE":                                 `level=INFO msg="audit: command" ` + who + `command=role failed=false`,
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
			t.Errorf("after a failed login the log has %q, want %q", got, want)
		}
		p.expect("AUTH billing pw", ok)
		p.expect("SIMBA.OWNER other", noKey)
		if got, want := log.lines(), `level=WARN msg="audit: permission denied" user=billing addr=192.0.2.1:1000 denied=key object=other context=toplevel mutex=other unlogged=0`; len(got) != 1 || got[0] != want {
			t.Errorf("after a denial the log has %q, want %q", got, want)
		}
		p.do("SIMBA.OWNER billing:1")
		p.do("CLIENT ID")
		if got := log.lines(); len(got) != 0 {
			t.Errorf("after commands that are not audited the log has %q, want nothing", got)
		}
	})
}

func TestEveryCommandOfAdministratorsIsAudited(t *testing.T) {
	var others []string
	for e := range newTable(families()).all() {
		switch ofAdministrators := e.acl()&catAdmin != 0; {
		case ofAdministrators && !e.has(audited):
			t.Errorf("%s is for administrators, but not audited", e.full)
		case !ofAdministrators && e.has(audited):
			others = append(others, e.full)
		}
		if e.has(audited) && e.keyed != nil && !e.has(noscript) {
			t.Errorf("%s is audited, but a script could call it without a log line", e.full)
		}
	}
	if want := []string{"script|flush", "script|kill", "flushall", "flushdb"}; !slices.Equal(others, want) {
		t.Errorf("besides the commands of administrators, %q are audited, want %q", others, want)
	}
}

func TestBreakIsAuditedInTransactionsToo(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, log *logbook) {
		p := s.as("boss")
		breaks := func(want int) {
			t.Helper()
			got := log.lines()
			if len(got) != want {
				t.Errorf("the log has %d lines, want %d: %q", len(got), want, got)
			}
			for _, line := range got {
				if !strings.Contains(line, `msg="audit: command" user=boss`) || !strings.Contains(line, "command=simba.break mutex=m") {
					t.Errorf("the log has %q, want a SIMBA.BREAK of m by boss", line)
				}
			}
		}
		p.expect("MULTI", ok)
		p.expect("SIMBA.BREAK m", "+QUEUED\r\n")
		p.expect("SIMBA.BREAK m", "+QUEUED\r\n")
		breaks(0) // the queued BREAK has not run
		p.expect("EXEC", "*2\r\n:0\r\n:0\r\n")
		breaks(2)
		p.expect("MULTI", ok)
		p.expect("SIMBA.BREAK m", "+QUEUED\r\n")
		p.expect("DISCARD", ok)
		breaks(0)
	})
}

// The audit log does not show the commands that scripts call. So scripts must not call commands of
// administrators.
func TestAScriptCannotBreak(t *testing.T) {
	s := newEngineSite(t)
	p := s.dial()
	p.expect("SET m v", ok)
	for _, call := range []string{"'simba.break','m'", "'shutdown'", "'monitor'", "'config','get','*'", "'client','kill','id','1'", "'acl','load'", "'flushall'", "'role'"} {
		if got := p.do(`EVAL "return redis.call(` + call + `)" 0`); !strings.Contains(got, "This Redis command is not allowed from script") {
			t.Errorf("a script that calls %s gets %q, want a refusal", call, got)
		}
	}
	p.expect("GET m", bulk("v"))
}

func TestCommandsWithoutReplyAreAudited(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, log *logbook) {
		s.as("boss").expect("MONITOR", ok)
		p := s.as("boss")
		p.send("SHUTDOWN NOSAVE")
		p.expectEnd()
		synctest.Wait()
		want := []string{"user=boss addr=pipe command=monitor failed=false", "user=boss addr=pipe command=shutdown args=NOSAVE failed=false"}
		if got := log.lines(); len(got) != 2 || !strings.HasSuffix(got[0], want[0]) || !strings.HasSuffix(got[1], want[1]) {
			t.Errorf("the log has %q, want lines that end with %q", got, want)
		}
	})
}

func TestLogLimiterAllowsOneLineASecondAndCountsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v logLimiter
		var wanted, reported, lines atomic.Int64
		report := func(n int) { reported.Add(int64(n)); lines.Add(1) }
		v.late = report
		began := time.Now()
		var all sync.WaitGroup
		for g := range 4 {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			all.Go(func() {
				for time.Since(began) < time.Hour {
					// Some of these pauses end just when the limiter allows a line, or when its
					// timer fires.
					time.Sleep([]time.Duration{0, 0, 0, logPause, logPause / 2, 3 * logPause, time.Minute}[random.IntN(7)])
					for range random.IntN(40) {
						wanted.Add(1)
						if open, missed := v.allow(); open {
							report(1 + missed)
						}
					}
				}
			})
		}
		all.Wait()
		v.close()
		if wanted.Load() == 0 || reported.Load() != wanted.Load() {
			t.Errorf("the limiter has reported %d lines, want %d", reported.Load(), wanted.Load())
		}
		if most := int64(logBurst + time.Since(began)/logPause + 1); lines.Load() > most {
			t.Errorf("the limiter has allowed %d lines, want at most %d", lines.Load(), most)
		}
	})
}

func TestClientsCannotFloodTheAuditLog(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, log *logbook) {
		p := s.as("billing")
		for range 1000 {
			p.expect("FLUSHALL", noCommand("flushall"))
		}
		if got := log.lines(); len(got) != logBurst {
			t.Errorf("1000 denials left %d lines, want %d", len(got), logBurst)
		}
		p.expect("AUTH boss guess", wrongPass)
		if got := log.lines(); len(got) != 1 {
			t.Errorf("after many denials and a failed login the log has %q, want a line for the login", got)
		}
		time.Sleep(10 * time.Second)
		for range 1000 {
			p.expect("FLUSHALL", noCommand("flushall"))
		}
		// The first of the ten lines reports how many lines were omitted before.
		got := log.lines()
		if len(got) != 10 || got[0] != `level=WARN msg="audit: left out" of="audit: permission denied" unlogged=980` || !strings.HasSuffix(got[1], " unlogged=0") {
			t.Errorf("10 s later the log has %d lines, want 10, of which the first reports 980 omitted lines; the first two are %q", len(got), got[:min(2, len(got))])
		}
		if got := s.dial().do("INFO stats"); !strings.Contains(got, "acl_access_denied_cmd:2000\r\n") || !strings.Contains(got, "acl_access_denied_auth:1\r\n") {
			t.Errorf("INFO stats replied %q, want a count of 2000 denials and 1 failed login", got)
		}
	})
}

func TestUsersCannotFloodTheAuditLogByAuditedCommands(t *testing.T) {
	withLog(t, func(t *testing.T, s *site, log *logbook) {
		p := s.as("billing")
		for range 1000 {
			p.do("SCRIPT FLUSH")
		}
		if n := len(log.lines()); n != logBurst {
			t.Errorf("1000 SCRIPT FLUSH left %d lines, want %d", n, logBurst)
		}
		s.x.Close()
		if got := log.lines(); len(got) != 1 || got[0] != `level=INFO msg="audit: left out" of="audit: command" unlogged=980` {
			t.Errorf("after Close the log has %q, want a line that reports 980 more", got)
		}
	})
}
