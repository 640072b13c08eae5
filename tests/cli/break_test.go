package cli

import (
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

func TestBreakEndsTheTenureAndHandsOff(t *testing.T) {
	s := contended(t, "embedded")
	run(t, url(s), "break", "job").fails(t, 2, "standard input is no terminal; use --yes")
	if o := object(t, must(t, url(s), "owner", "job", "--json")); o["owner"] != "alice" {
		t.Errorf("after a refused break the owner is %v, want alice", o)
	}
	if out := must(t, url(s), "break", "job", "--yes", "--reason", "stuck"); !strings.HasPrefix(out, "broke the tenure of alice on job, token ") {
		t.Errorf("break prints %s, want that the tenure of alice is broken", out)
	}
	if out := must(t, url(s), "history", "job"); !strings.Contains(out, "broken") || !strings.Contains(out, "stuck") {
		t.Errorf("history prints\n%s\nwant the break with its reason", out)
	}
	simbatest.Acquire(t, simbatest.GoRedis(t, s), "other", "eve", 60_000)
	if o := object(t, must(t, url(s), "break", "other", "--yes", "--json")); o["broken"] != true || o["owner"] != "eve" || o["mutex"] != "other" {
		t.Errorf("break --json prints %v, want a broken tenure of eve on other", o)
	}
}

func TestBreakAsksOnATerminal(t *testing.T) {
	s := contended(t, "embedded")
	c := simbatest.GoRedis(t, s)
	if code, out := onTerminal(t, url(s), func() string { return "\n" }, "break", "job"); code != 1 || !strings.Contains(out, "not broken") {
		t.Errorf("break after an empty answer: exit code %d, want 1: %s", code, out)
	}
	// The owner changes while the person reads the question.
	code, out := onTerminal(t, url(s), func() string {
		if err := c.Do(t.Context(), "SIMBA.RELEASE", "job", "alice").Err(); err != nil {
			t.Error(err)
		}
		if status, _ := simbatest.Acquire(t, c, "job", "bob", 600_000); status != "acquired" {
			t.Errorf("ACQUIRE by bob returns %s, want acquired", status)
		}
		return "y\n"
	}, "break", "job")
	if code != 1 || !strings.Contains(out, "not broken: job has a new tenure, of bob") {
		t.Errorf("break after yes to an outdated question: exit code %d, want 1: %s", code, out)
	}
	if code, out := onTerminal(t, url(s), func() string { return "yes\n" }, "break", "job"); code != 0 || !strings.Contains(out, "broke the tenure of bob") {
		t.Errorf("break after yes: exit code %d, want 0: %s", code, out)
	}
}

// onTerminal runs a command whose standard input is a terminal. When the command asks a question,
// the person types the result of answer.
func onTerminal(t *testing.T, server string, answer func() string, args ...string) (code int, out string) {
	t.Helper()
	master, slave, err := pty.Open()
	simbatest.Must(t, err)
	defer master.Close()
	defer slave.Close()
	cmd := exec.Command(simbatest.Binary(t), args...)
	cmd.Env = append(simbatest.Environ(), "SIMBA_URL="+server)
	cmd.Stdin = slave
	// The question has no end of line, so read pieces instead of lines.
	errs, err := cmd.StderrPipe()
	simbatest.Must(t, err)
	var printed strings.Builder
	cmd.Stdout = &printed
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	simbatest.Must(t, cmd.Start())
	asked := false
	buffer := make([]byte, 1000)
	var text strings.Builder
	for {
		n, err := errs.Read(buffer)
		text.Write(buffer[:n])
		if !asked && strings.Contains(text.String(), "[y/N]") {
			asked = true
			if _, err := master.WriteString(answer()); err != nil {
				t.Error(err)
			}
		}
		if err != nil {
			break
		}
	}
	_ = cmd.Wait() // callers check the exit code
	if !asked {
		t.Errorf("%v asks no question: %s", args, &text)
	}
	return cmd.ProcessState.ExitCode(), text.String() + printed.String()
}

// If the reply to BREAK is lost, the command cannot know whether the tenure has ended. A second
// BREAK could end the tenure of the next waiter.
func TestLostReplyOfBreakIsNotRepeated(t *testing.T) {
	s := simbatest.Start(t)
	simbatest.Acquire(t, simbatest.GoRedis(t, s), "job", "alice", 600_000)
	granted := make(chan error, 1)
	waiter := simbatest.Conn(t, s)
	go func() {
		_, err := waiter.Do("SIMBA.ACQUIRE", "job", "bob", 600_000, "WAIT", 0)
		granted <- err
	}()
	simbatest.AwaitBlocked(t, s.Addr, 1)
	cut := listen(t, func(c net.Conn) { untilBreak(t, c, s.Addr, func() bool { return true }) })
	r := run(t, "redis://"+cut, "break", "job", "--yes")
	r.fails(t, 69, "the tenure may have ended: look at it before you repeat this")
	simbatest.Must(t, <-granted)
	if o := object(t, must(t, url(s), "owner", "job", "--json")); o["owner"] != "bob" {
		t.Errorf("owner prints %v, want bob", o)
	}
}

// The tenure can end after the command has read the owner. Then BREAK ends the next tenure.
func TestBreakNamesTheTenureThatItBroke(t *testing.T) {
	simbatest.OnEveryEngine(t, func(t *testing.T, engine string) {
		s := simbatest.StartOn(t, engine)
		c := simbatest.GoRedis(t, s)
		simbatest.Acquire(t, c, "job", "alice", 600_000)
		late := listen(t, func(conn net.Conn) {
			untilBreak(t, conn, s.Addr, func() bool {
				if err := c.Do(t.Context(), "SIMBA.RELEASE", "job", "alice").Err(); err != nil {
					t.Error(err)
				}
				simbatest.Acquire(t, c, "job", "bob", 600_000)
				return false
			})
		})
		r := run(t, "redis://"+late, "break", "job", "--yes", "--json", "--reason", "stuck")
		var broken map[string]any
		if r.code == 0 {
			broken = object(t, r.out)
		}
		history := objects(t, must(t, url(s), "history", "job", "--json"))
		last := history[len(history)-1]
		if broken["owner"] != "bob" || last["event"] != "broken" || last["owner"] != "bob" || broken["token"] != last["token"] {
			t.Errorf("break exits with code %d and prints %v, %s, want the tenure at the end of the history: %v", r.code, broken, r.err, last)
		}
	})
}

func TestBreakSaysThatItBrokeAnotherTenureThanItAskedFor(t *testing.T) {
	s := contended(t, "embedded")
	c := simbatest.GoRedis(t, s)
	late := listen(t, func(conn net.Conn) {
		untilBreak(t, conn, s.Addr, func() bool {
			if err := c.Do(t.Context(), "SIMBA.RELEASE", "job", "alice").Err(); err != nil {
				t.Error(err)
			}
			simbatest.Acquire(t, c, "job", "bob", 600_000)
			return false
		})
	})
	code, out := onTerminal(t, "redis://"+late, func() string { return "y\n" }, "break", "job")
	for _, want := range []string{"job is held by alice, token ", "the tenure of alice, token ", "had ended just before", "broke the tenure of bob on job, token "} {
		if code != 0 || !strings.Contains(out, want) {
			t.Errorf("break exits with code %d, want 0 and %q in the output: %s", code, want, out)
		}
	}
}

// untilBreak relays a connection to the server. Before it relays BREAK, it calls before. If before
// returns true, untilBreak closes the connection instead of relaying the reply.
func untilBreak(t *testing.T, c net.Conn, addr string, before func() bool) {
	server, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer server.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := c.Read(buffer)
		if err != nil {
			return
		}
		last := strings.Contains(string(buffer[:n]), "SIMBA.BREAK") && before()
		if _, err := server.Write(buffer[:n]); err != nil {
			return
		}
		n, err = server.Read(buffer)
		if err != nil || last {
			return
		}
		if _, err := c.Write(buffer[:n]); err != nil {
			return
		}
	}
}
