// Package bugs builds servers with a known bug, to show that the tests catch it.
//
// Each patch in this folder is a mistake that a maintainer could make. Its first line says what the
// server then does wrong. The package applies a patch to copies of the files that the patch
// changes. The option -overlay of the go command compiles the copies instead of the files, so the
// source tree does not change.
//
// Each package whose tests must catch bugs has a test for that, which needs the flag -bugs. It
// fails if the tests find no breach, or only breaches of other rules:
//
//	make bugs                  every bug
//	make bugs RUN=late-expiry  one of them
//
// If the code around a bug changes, renew the patch:
//
//	git apply -3 tests/bugs/late-expiry.patch             merges it; resolve the conflicts
//	git diff -U1 HEAD -- engine >>tests/bugs/late-expiry.patch
//	git checkout HEAD -- engine                           takes the bug out of the code
//
// Then remove the old diff from the patch, and keep its first line.
package bugs

import (
	"embed"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

//go:embed *.patch
var patches embed.FS

const extension = ".patch"

var wanted = flag.Bool("bugs", false, "build servers with bugs, and require that tests find these")

// SkipUnlessWanted skips the test without the flag -bugs, since tests of bugs build many servers.
func SkipUnlessWanted(t testing.TB) {
	t.Helper()
	if !*wanted {
		t.Skip("only with -bugs: make bugs")
	}
}

// Names returns the names of all bugs in alphabetical order.
func Names(t testing.TB) (names []string) {
	t.Helper()
	files, err := patches.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), extension))
	}
	return names
}

// Go runs a go command, "build", "vet" or "test", in the root of the module, on code with the bug.
// It returns the output, and an error if the command failed.
func Go(t testing.TB, bug, command string, args ...string) (output string, err error) {
	t.Helper()
	root := moduleRoot(t)
	overlay := writeOverlay(t, root, applyPatch(t, root, bug))
	cmd := exec.Command("go", append([]string{command, "-overlay", overlay}, args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w", cmd, err)
	}
	return string(out), err
}

// TestsCatch checks that the tests of a package catch its bugs: those whose names begin with prefix.
// caught maps each of them to the test that must fail. Some bugs prevent an event for which that
// test waits; such a test fails after the time atMost. args are more arguments of go test.
func TestsCatch(t *testing.T, prefix, folder string, atMost time.Duration, caught map[string]string, args ...string) {
	t.Helper()
	for _, bug := range Names(t) {
		if strings.HasPrefix(bug, prefix) && caught[bug] == "" {
			t.Errorf("no test is named for the bug %s", bug)
		}
	}
	SkipUnlessWanted(t)
	for bug, test := range caught {
		t.Run(bug, func(t *testing.T) {
			pattern := "^" + strings.ReplaceAll(test, "/", "$/^") + "$"
			args := append([]string{"-count", "1", "-vet", "off", "-run", pattern, "-timeout", atMost.String(), folder}, args...)
			out, err := Go(t, bug, "test", args...)
			waits := strings.Contains(out, "test timed out") && strings.Contains(out, "\t"+test+" (")
			if err == nil || !waits && !strings.Contains(out, "--- FAIL: "+test) {
				t.Errorf("go test ends with %v, want a failure of %s:\n%s", err, test, out)
			}
		})
	}
}

// changedFile matches the line of a patch that names a changed file.
var changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)

// applyPatch copies the files that a patch changes, and applies the patch to the copies. It returns
// the path of each copy by the path of the original.
func applyPatch(t testing.TB, root, bug string) (copies map[string]string) {
	t.Helper()
	patch, err := patches.ReadFile(bug + extension)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copies = make(map[string]string)
	for _, match := range changedFile.FindAllSubmatch(patch, -1) {
		name := string(match[1])
		copies[name] = filepath.Join(dir, name)
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatalf("read a file that %s changes: %v", bug+extension, err)
		}
		if err := os.MkdirAll(filepath.Dir(copies[name]), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(copies[name], content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("git", "apply", "-")
	cmd.Dir = dir
	// Otherwise git would look for a repository above dir.
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	cmd.Stdin = strings.NewReader(string(patch))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s%s no longer applies to the code; to renew the patch, see the comment of package bugs: %v\n%s", bug, extension, err, out)
	}
	return copies
}

// writeOverlay writes a file for the option -overlay, and returns its path.
func writeOverlay(t testing.TB, root string, copies map[string]string) (path string) {
	t.Helper()
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for name, to := range copies {
		overlay.Replace[filepath.Join(root, name)] = to
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// moduleRoot returns the folder of the module's go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}
