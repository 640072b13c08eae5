package need

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// try runs tools/try in dir, as make test does. It returns the output and the exit code.
func try(t *testing.T, dir string, args ...string) (output string, code int) {
	t.Helper()
	out, err := exec.Command(filepath.Join(dir, "tools", "try"), args...).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(out), code
}

// clone returns a folder with a copy of tools/try.
func clone(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	script, err := os.ReadFile("../../tools/try")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "tools", "try"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAfterAFailureTheRestRunsAndASummaryFollows(t *testing.T) {
	dir := clone(t)
	for _, command := range []string{
		`printf '%s\n' '--- FAIL: TestA (1.00s)' '    --- FAIL: TestA/b (0.50s)' '    a_test.go:7: got 1' FAIL 'FAIL	example/a	1.2s' 'ok  	example/b	1s'; exit 1`,
		`echo 'ok  	example/c	1s'`,
		`echo 'go: no such module'; exit 2`,
	} {
		if out, code := try(t, dir, "sh", "-c", command); code != 0 || out == "" {
			t.Errorf("tools/try %s: code %d, output %q; want code 0 and the command's output", command, code, out)
		}
	}
	out, code := try(t, dir)
	want := `
FAILED:
--- FAIL: TestA (1.00s)
    --- FAIL: TestA/b (0.50s)
FAIL	example/a	1.2s
sh -c echo 'go: no such module'; exit 2
`
	if code != 1 || out != want {
		t.Errorf("the summary has code %d and the text %q, want 1 and %q", code, out, want)
	}
}

func TestWithoutAFailureTheSummarySaysSo(t *testing.T) {
	dir := clone(t)
	try(t, dir, "true")
	if out, code := try(t, dir); code != 0 || !strings.HasPrefix(out, "all tests passed") {
		t.Errorf("the summary has code %d and the text %q, want 0 and that all tests passed", code, out)
	}
}
