package wrapper

import (
	"fmt"
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
	"github.com/simba-resp/simba-resp/tests/tenures"
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
	blocking, err := pty.Start(cmd)
	simbatest.Must(w, err)
	// Close would wait for a pending read of a blocking file.
	fd, err := unix.Dup(int(blocking.Fd()))
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	simbatest.Must(w, err)
	blocking.Close()
	file := os.NewFile(uintptr(fd), blocking.Name())
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

// reader is a shell command that reads a line from the terminal, as a pager does, and then shows
// its standard input. Ctrl-C does not end it.
const reader = `sh -c 'trap "" INT; read line </dev/tty; echo "read <$line>"; exec cat'`

// A pager is in the process group of the wrapper. If it reads while the command is in the
// foreground, the terminal sends SIGTTIN to both.
func TestPagerGetsTheTerminalWhileTheCommandRuns(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("$lock --ttl 1m --grace 1s job -- $worker | " + reader + "\n")
	w.awaitMoments()
	next := w.lock(w.worker())
	w.awaitQueued(1)
	c.types("words\n")
	c.wants(`read <words>`)
	c.wants(`started`)
	c.types(ctrlC)
	c.wants(`signal interrupt`)
	w.started(next)
	w.endsAsSecond(next)
}

// awaitMoments waits until the file has a timestamp.
func (w *world) awaitMoments() {
	w.Helper()
	simbatest.Await(w, "a command writes timestamps", func() bool {
		info, err := os.Stat(w.file)
		return err == nil && info.Size() > 0
	})
}

func TestTerminalGoesToWhoeverReadsIt(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("first=" + t.TempDir() + "/first\n")
	c.types("export first; $lock --ttl 1h job -- sh -c '" +
		`until [ -e $first ]; do sleep 0.02; done; read a </dev/tty; echo "command <$a>"; exec sleep 600` + "' | sh -c '" +
		`read a </dev/tty; echo "pager <$a>"; >$first; read a; echo "$a"; read a </dev/tty; echo "pager <$a>"` + "'\n")
	for _, words := range []string{"pager <a>", "command <b>", "pager <c>"} {
		c.types(words[len(words)-2:len(words)-1] + "\n")
		c.wants(words)
	}
	c.types(ctrlC)
	c.wants(`prompt> `)
}

// With the setting tostop, a process needs the terminal to write to it.
func TestTerminalGoesToWhoeverWritesToIt(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	const writer = `i=0; while [ $i -lt 50 ]; do i=$((i+1)); echo %s $i. >/dev/tty; done`
	c.types("stty tostop; $lock --ttl 1h job -- sh -c '" + fmt.Sprintf(writer, "command") + "' | sh -c '" + fmt.Sprintf(writer, "pipe") + "'\n")
	c.wants(`(?s)(command 50\..*pipe 50\.|pipe 50\..*command 50\.).*prompt> `)
}

// A stopped wrapper cannot renew its lease. So the command stops with it, and does not continue if the
// lease has ended meanwhile. The shell has the terminal, as without a wrapper.
func TestCommandDoesNotContinueWhenItsLeaseEndedWhileItWasStopped(t *testing.T) {
	keys := func(keys string) func(*console) { return func(c *console) { c.types(keys) } }
	const lock = "$lock --ttl 3s --grace 1s job -- "
	// One of the processes ignores SIGTSTP.
	const alone = "stty -tostop; " + lock + "sh -c \"trap '' TSTP; $worker\" &\n"
	for name, row := range map[string]struct {
		command string
		stop    func(*console)
		resume  string
	}{
		"Ctrl-Z": {lock + "$worker\n", keys(ctrlZ), "fg\n"},
		// In a script, a shell without job control starts the wrapper in its own process group, and
		// Ctrl-Z stops all of them.
		"Ctrl-Z, in the background of a script": {"sh -c \"" + lock + "$worker & wait\"\n", keys(ctrlZ), "fg\n"},
		"SIGTSTP for the wrapper alone":         {alone, keys("kill -TSTP $!\n"), "kill -CONT $!\n"},
		"SIGTTIN for the wrapper alone":         {alone, keys("kill -TTIN $!\n"), "kill -CONT $!\n"},
		"SIGTTOU for the wrapper alone":         {alone, keys("kill -TTOU $!\n"), "kill -CONT $!\n"},
		// The outer wrapper stops the inner one, which must stop its own command first.
		"SIGTSTP for an outer wrapper": {"$lock --ttl 1h outer -- " + lock + "$worker &\n", keys("kill -TSTP $!\n"), "fg\n"},
		"the first process of the group": {lock + "$worker --family\n", func(c *console) {
			simbatest.Must(c, unix.Kill(atoi(c.wants(`started (\d+) token`)[1]), unix.SIGSTOP))
		}, "fg\n"},
		"a job in the background that needs the terminal": {lock + "$worker --family &\n", keys("kill -TTIN %1\n"), "fg\n"},
		"a pager in the background that needs the terminal": {
			lock + "$worker --family | sh -c 'read line; read line </dev/tty' &\n", keys(""), "fg\nwords\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.shell()
			c.types(row.command)
			w.awaitMoments()
			row.stop(c)
			next := w.lock(w.worker())
			w.started(next)
			w.awaitRun()
			c.types("echo still he''re\n")
			c.wants(`still here`)
			for line := range strings.Lines(row.resume) {
				c.types(line)
				if line == "fg\n" {
					c.wants(`job -- `)
				}
			}
			c.wants(`too late for SIGTERM`)
			w.endsAsSecond(next)
		})
	}
}

// awaitRun waits until the command of the last tenure has run for 100 ms. A command that still runs
// beside it writes timestamps meanwhile.
func (w *world) awaitRun() {
	w.Helper()
	simbatest.Await(w, "the last command runs for 100 ms", func() bool {
		all := tenures.Moments(w, w.file)
		return all[len(all)-1].To-all[len(all)-1].From >= 100*time.Millisecond
	})
}

// A script without job control starts its background jobs with SIGINT ignored.
func TestCommandInTheBackgroundOfAScriptCanReadTheTerminal(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types("sh -c '" + `$lock job -- sh -c "read a </dev/tty; echo got $(echo job)" & wait; read b; echo "read <$b>"` + "'\n")
	c.types("words\n")
	c.wants(`got job`)
	c.types("more\n")
	c.wants(`read <more>`)
}

func TestIgnoredStopSignalStaysIgnored(t *testing.T) {
	w := newWorld(t)
	c := w.shell()
	c.types(`sh -c "trap '' TSTP; $lock --ttl 1h job -- $worker"` + "\n")
	c.wants(`started`)
	c.types(ctrlZ)
	c.types(ctrlC)
	c.wants(`signal interrupt foreground true`)
	c.wants(`prompt> `)
	if strings.Contains(c.shown(), "Stopped") {
		t.Errorf("Ctrl-Z has stopped the job:\n%s", c.shown())
	}
}
