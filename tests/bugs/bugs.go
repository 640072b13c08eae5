// Package bugs builds servers that have a known bug, to test the tests: a test that never fails
// proves nothing.
//
// Each patch of this folder is a mistake that a maintainer could really make. Its first line says
// what the server then does. The patch is applied to copies of the files that it changes. The
// option -overlay of go build and go test compiles these copies instead of the files. So the
// product has no switches for bugs, and the tree stays as it is.
//
// A test of the package that catches the bug runs with the flag -bugs only. It fails if the bug is
// not found, or not as a breach of the rule that the bug breaks:
//
//	make bugs                  every bug
//	make bugs RUN=late-expiry  one of them
//
// If the code around a bug changes, its patch must be made anew:
//
//	git apply -3 tests/bugs/late-expiry.patch             merges it; resolve what is left
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
)

//go:embed *.patch
var patches embed.FS

const extension = ".patch"

var wanted = flag.Bool("bugs", false, "build servers with bugs, and require that tests find these")

// SkipUnlessWanted skips a test that builds many servers, unless the flag -bugs is given.
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

// Go runs "go build", "go vet" or "go test" in the root of the module, on code that has the bug. It
// returns the output, and an error if the command failed.
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

// changedFile matches the line of a patch that names a file.
var changedFile = regexp.MustCompile(`(?m)^\+\+\+ b/(\S+)$`)

// applyPatch copies the files that a patch changes into a new folder and changes them there. It
// returns the path of each copy by the path of its file, both below the root of the module.
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
			t.Fatalf("%s: %v", bug, err)
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
	// dir is no part of a repository
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	cmd.Stdin = strings.NewReader(string(patch))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s%s does not apply any more, see the comment of package bugs: %v\n%s", bug, extension, err, out)
	}
	return copies
}

// writeOverlay writes the file for -overlay and returns its path.
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

// moduleRoot returns the folder of go.mod.
func moduleRoot(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}
