package cli

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// into runs a command whose standard output is out.
func into(t *testing.T, out *os.File, server string, args ...string) result {
	t.Helper()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), simbatest.Binary(t), args...)
	cmd.Env = append(simbatest.Environ(), "SIMBA_URL="+server)
	cmd.Stdout, cmd.Stderr = out, &stderr
	_ = cmd.Run() // the caller checks the exit code
	return result{err: stderr.String(), code: cmd.ProcessState.ExitCode()}
}

func openFull(t *testing.T) *os.File {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	simbatest.Must(t, err)
	t.Cleanup(func() { full.Close() })
	return full
}

func TestOutputThatCannotBeWrittenHasAnExitCodeOfItsOwn(t *testing.T) {
	s := contended(t, "embedded")
	const lost = "write /dev/stdout: no space left on device"
	for _, command := range []string{
		"owner job", "owner job --json", "queue job", "queue job --json", "history job", "history job --json", "list", "list --json", "status", "status --json", "why job", "why job --json",
		"owner free --json", "check", "completion bash", "--version", "version",
	} {
		into(t, openFull(t), url(s), strings.Fields(command)...).fails(t, 73, lost)
	}
	for _, command := range []string{"--help", "serve --help", "owner --help", "lock --help", "help break", "backup --help", "backup " + filepath.Join(t.TempDir(), "b")} {
		into(t, openFull(t), url(s), strings.Fields(command)...).fails(t, 73, "done, but the output is lost: "+lost)
	}
	// A file that is open for reading only is like a closed one.
	in, err := os.Open(os.DevNull)
	simbatest.Must(t, err)
	defer in.Close()
	into(t, in, url(s), "owner", "job").fails(t, 73, "bad file descriptor")
	// The answer and the arguments matter only if they can be written.
	into(t, openFull(t), url(s), "owner", "free").fails(t, 1, "free has no owner")
	into(t, openFull(t), url(s), "owner").fails(t, 2, "owner needs the NAME of a mutex")
}

func TestWatchEndsIfItsOutputCannotBeWritten(t *testing.T) {
	s := simbatest.Start(t)
	cmd := exec.CommandContext(t.Context(), simbatest.Binary(t), "watch", "job", "--url", url(s))
	cmd.Env, cmd.Stdout = simbatest.Environ(), openFull(t)
	stderr, err := cmd.StderrPipe()
	simbatest.Must(t, err)
	simbatest.Must(t, cmd.Start())
	lines := bufio.NewScanner(stderr)
	lines.Scan() // it watches now
	simbatest.Acquire(t, simbatest.GoRedis(t, s), "job", "alice", 60_000)
	for lines.Scan() && !strings.Contains(lines.Text(), "no space left on device") {
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 73 {
		t.Errorf("watch exits with code %d after the line %q, want 73", code, lines.Text())
	}
}

func TestBreakSaysWhatItDidIfItsOutputIsLost(t *testing.T) {
	s := contended(t, "embedded")
	closed := func() *os.File { // a pipe without a reader
		r, w, err := os.Pipe()
		simbatest.Must(t, err)
		r.Close()
		t.Cleanup(func() { w.Close() })
		return w
	}
	c := simbatest.GoRedis(t, s)
	for _, out := range []*os.File{openFull(t), closed()} {
		for _, args := range [][]string{{"break", "job", "--yes"}, {"break", "job", "--yes", "--json"}} {
			simbatest.Acquire(t, c, "job", "alice", 600_000)
			into(t, out, url(s), args...).fails(t, 73, "broke the tenure of alice on job, token ")
			if o := object(t, must(t, url(s), "history", "job", "--json", "--count", "1")); o["event"] != "broken" {
				t.Errorf("after break the last event is %v, want broken", o)
			}
			simbatest.Must(t, c.Do(t.Context(), "SIMBA.BREAK", "job").Err())
		}
	}
}
