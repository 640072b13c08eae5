//go:build !bugs

package bugs_test

import (
	"bytes"
	"os"
	"testing"

	_ "github.com/simba-resp/simba-resp/commands"
	_ "github.com/simba-resp/simba-resp/engine"
	_ "github.com/simba-resp/simba-resp/persist"
	_ "github.com/simba-resp/simba-resp/resp"
)

// The mistakes are behind a constant, so the compiler leaves nothing of them: no call, and not
// even the name of one that was inlined. This program has all that the server can have.
func TestWithoutTheTagNoBugIsInTheServer(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(program, []byte("simba-resp/engine.(*mutex).advance")) {
		t.Fatal("this program does not tell the names of its functions")
	}
	// Not in one piece, or it would be in this program.
	if name := append([]byte("simba-resp/bugs"), ".On"...); bytes.Contains(program, name) {
		t.Errorf("%s is in the server", name)
	}
}
