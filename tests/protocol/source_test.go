package protocol

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/simba-resp/simba-resp/tests/need"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// source is the path of Redis' source in the user's cache folder.
const source = "simba-resp/redis-7.0.15"

// functionFlush is a line of the suite that sends a command before each unit. This server does not
// have the command, so suite removes the line.
const functionFlush = "\n    r function flush\n"

// suite returns a folder with a copy of the suite, since the suite writes into its own folder.
func suite(t *testing.T) string {
	t.Helper()
	need.Program(t, "tclsh", "tcl")
	cache, err := os.UserCacheDir()
	simbatest.Must(t, err)
	tests := filepath.Join(cache, source, "tests")
	if _, err := os.Stat(filepath.Join(tests, "test_helper.tcl")); err != nil {
		need.Missing(t, "Redis' test suite is not in %s: run tools/install", tests)
	}

	dir := t.TempDir()
	simbatest.Must(t, os.CopyFS(filepath.Join(dir, "tests"), os.DirFS(tests)))
	support := filepath.Join(dir, "tests/support/server.tcl")
	text, err := os.ReadFile(support)
	simbatest.Must(t, err)
	if n := bytes.Count(text, []byte(functionFlush)); n != 1 {
		t.Fatalf("the suite has the line FUNCTION FLUSH %d times, want 1", n)
	}
	text = bytes.Replace(text, []byte(functionFlush), []byte("\n"), 1)
	simbatest.Must(t, os.WriteFile(support, text, 0o600))
	return dir
}
