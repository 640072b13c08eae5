package wrapper

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// console is a terminal in which a program runs: a shell with job control, or a wrapper.
type console struct {
	testing.TB
	file *os.File

	mu   sync.Mutex // guards text
	text strings.Builder
	seen int // end of the last match in text; only the goroutine of the test uses it
}

// Keys that a terminal converts to signals.
const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func (w *world) open(program string, args ...string) *console {
	w.Helper()
	cmd := exec.Command(program, args...)
	cmd.Env = append(simbatest.Environ(), "PS1=prompt> ", "TERM=dumb", "SIMBA_URL="+w.url(),
		"lock="+simbatest.Binary(w)+" lock", "worker="+strings.Join(w.worker(), " "))
	file, err := pty.Start(cmd)
	if err != nil {
		w.Fatal(err)
	}
	c := &console{TB: w, file: file}
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(c, file) }) // until the terminal is closed
	w.Cleanup(func() {
		file.Close() // so the kernel sends SIGHUP
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		reading.Wait()
	})
	return c
}

// shell opens a terminal with a shell that has job control.
func (w *world) shell() *console {
	w.Helper()
	c := w.open("bash", "--norc", "--noprofile", "--noediting", "-i")
	c.wants("prompt> ")
	return c
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.Write(p)
}

func (c *console) shown() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

func (c *console) types(keys string) {
	c.Helper()
	if _, err := io.WriteString(c.file, keys); err != nil {
		c.Fatal(err)
	}
}

// wants waits until the terminal shows a match of the pattern after that of the last call.
func (c *console) wants(pattern string) []string {
	c.Helper()
	re := regexp.MustCompile(pattern)
	for end := time.Now().Add(simbatest.Patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		text := c.shown()[c.seen:]
		if at := re.FindStringSubmatchIndex(text); at != nil {
			c.seen += at[1]
			return re.FindStringSubmatch(text)
		}
	}
	c.Fatalf("the terminal does not show %s:\n%s", pattern, c.shown())
	return nil
}

func TestCommandIsInTheForegroundOfATerminal(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("$lock job -- $worker; echo code $?\n")
	c.wants(`started \d+ token \d+ of job foreground true`)
	c.types(ctrlC)
	c.wants(`signal interrupt foreground true`)
	c.wants(`code 0`)
	if n := strings.Count(c.shown(), "signal interrupt"); n != 1 {
		t.Errorf("the command got %d interrupts, want 1", n)
	}
	// The shell has the terminal again, and can read from it.
	c.types("read line; echo got $line\nwords\n")
	c.wants(`got words`)
}

func TestCtrlZStopsTheJobAndFgContinuesIt(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("$lock --ttl 1h job -- $worker\n")
	c.wants(`started`)
	for range 2 {
		c.types(ctrlZ)
		c.wants(`Stopped`)
		c.types("echo still he''re\n")
		c.wants(`still here`)
		c.types("fg\n")
		c.wants(`signal continued`)
	}
	c.types(ctrlC)
	c.wants(`signal interrupt foreground true`)
	c.types("echo code $?\n")
	c.wants(`code 0`)
}

func TestCommandDoesNotContinueWhenItsLeaseEndedWhileItWasStopped(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("$lock --ttl 1s --grace 1s job -- $worker\n")
	c.wants(`started`)
	c.types(ctrlZ)
	c.wants(`Stopped`)
	next := w.lock(w.worker())
	w.started(next)
	c.types("fg; echo code $?\n")
	c.wants(`too late for SIGTERM`)
	c.wants(`code 76`)
	next.Signal(unix.SIGTERM)
	w.wantsCode(next, 0)
	if n := w.neverTwo(); n != 2 {
		t.Errorf("%d commands ran, want 2", n)
	}
}

// If the first process of the group stops, the wrapper stops, and cannot renew. So the other
// processes must stop, too.
func TestStoppedFirstProcessStopsItsWholeGroup(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("$lock --ttl 5s --grace 1s job -- $worker --family\n")
	pid := atoi(c.wants(`started (\d+) token`)[1])
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.wants(`Stopped`)
	next := w.lock(w.worker())
	w.started(next)
	next.Signal(unix.SIGTERM)
	w.wantsCode(next, 0)
	c.types("fg; echo code $?\n")
	c.wants(`code 76`)
	if n := w.neverTwo(); n != 2 {
		t.Errorf("%d commands ran, want 2", n)
	}
}

// Without a shell, nobody could continue a stopped wrapper. So it must not stop.
func TestCtrlZWithoutAShellDoesNotStopTheCommandForEver(t *testing.T) {
	w := newWorld(t)
	c := w.open(simbatest.Binary(t), append([]string{"lock", "job", "--"}, w.worker()...)...)
	c.wants(`started`)
	c.types(ctrlZ)
	c.wants(`signal continued foreground true`)
	c.types(ctrlC)
	c.wants(`signal interrupt foreground true`)
}

// Without a wrapper, Ctrl-C ends the script, since the terminal sends it SIGINT, too. With a
// wrapper, the script must also end.
func TestCtrlCEndsTheScriptThatRunsTheWrapper(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	for _, shell := range []string{"sh", "bash"} { // bash continues unless lock dies of SIGINT
		c.types(shell + " -c \"$lock job -- sh -c 'echo star''ted; exec sleep 600'; echo the script goes o''n\"\n")
		c.wants(`started`)
		c.types(ctrlC)
		c.wants(`prompt> `)
		c.types("echo code $?\n")
		c.wants(`code 130`)
	}
	w.started(w.lock(w.worker()))
	c.types("bash -c 'echo wait''ing; $lock job -- true; echo the script goes o''n'\n")
	c.wants(`waiting`)
	w.awaitQueued(1)
	c.types(ctrlC)
	c.wants(`prompt> `)
	c.types("echo code $?\n")
	c.wants(`code 130`)
	if strings.Contains(c.shown(), "the script goes on") {
		t.Errorf("the script continues after Ctrl-C:\n%s", c.shown())
	}
}

// While the command runs, the wrapper is in the background. With the setting tostop, the terminal
// stops background processes that write to it.
func TestWrapperWritesToATerminalWithTostop(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("stty tostop; $lock --ttl 12h job -- $worker; echo code $?\n")
	c.wants(`started`)
	simbatest.DoOne(t, simbatest.Conn(t, w.server), "SIMBA.BREAK", "job")
	c.wants(`the command gets SIGTERM`)
	c.wants(`code 76`)
}

func TestBackgroundJobThatReadsTheTerminalContinuesInTheForeground(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("$lock job -- sh -c 'read line; echo \"got <$line>\"' &\n")
	c.wants(`Stopped|prompt> `)
	c.types("wait -n; jobs; echo wait''ed\n")
	c.wants(`waited`)
	c.types("fg\n")
	c.wants(`lock job`)
	c.types("words\n")
	c.wants(`got <words>`)
}
