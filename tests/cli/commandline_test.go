package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// bare runs simba-resp without arguments in an empty folder.
func bare(t *testing.T, variables ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(simbatest.Binary(t))
	cmd.Env, cmd.Dir = append(simbatest.Environ(), variables...), t.TempDir()
	return cmd
}

func TestABareCallListsTheCommandsAndServesNothing(t *testing.T) {
	for _, variable := range []string{"A=b", "SIMBA_URL=redis://127.0.0.1:1", "SIMBA_ADDR="} {
		cmd := bare(t, variable)
		p := simbatest.RunCmd(t, cmd)
		if code := p.Wait(t); code != 2 {
			t.Errorf("with %s a bare call exits with code %d, want 2", variable, code)
		}
		out := strings.TrimRight(p.Output(), "\n") + "\n"
		if out != must(t, "redis://127.0.0.1:1", "--help") || !strings.Contains(out, "\n  serve ") || strings.Count(out, "\n") > 30 || strings.Contains(out, "--addr") {
			t.Errorf("with %s a bare call prints\n%s\nwant at most 30 lines with the commands, as --help", variable, out)
		}
		if made, err := os.ReadDir(cmd.Dir); len(made) > 0 || err != nil {
			t.Errorf("with %s a bare call made %v, %v", variable, made, err)
		}
	}
}

func TestAFlagOrASettingWithoutACommandServes(t *testing.T) {
	flags := bare(t)
	flags.Args = append(flags.Args, "--addr", "127.0.0.1:0")
	for _, cmd := range []*exec.Cmd{flags, bare(t, "SIMBA_ADDR=127.0.0.1:0")} {
		simbatest.RunCmd(t, cmd).Wants(t, "msg=ready")
	}
	run(t, "", "--nonsense").fails(t, 2, "(simba-resp serve --help lists the flags)")
}

func TestListShowsTheMutexesOfOneOwner(t *testing.T) {
	s := contended(t, "embedded")
	c := simbatest.GoRedis(t, s)
	simbatest.Acquire(t, c, "report", "alice", 600_000)
	simbatest.Acquire(t, c, "other", "alice-2", 600_000)
	if got := rows(must(t, url(s), "list", "--owner", "alice")); len(got) != 2 || got[0][0] != "job" || got[1][0] != "report" {
		t.Errorf("list --owner alice prints the rows %v, want job and report", got)
	}
	if got := rows(must(t, url(s), "list", "--owner", "bob")); len(got) != 0 { // a waiter
		t.Errorf("list --owner bob prints the rows %v, want none", got)
	}
	if o := object(t, must(t, url(s), "list", "--owner", "alice", "--contended", "--json")); o["mutex"] != "job" {
		t.Errorf("list --owner alice --contended prints %v, want job", o)
	}
}
