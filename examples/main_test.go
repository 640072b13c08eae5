// Package examples_test runs two processes of each example with a real server, and kills one of
// them.
package examples_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// scratch is a temporary folder for all tests.
var scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "simba-resp-examples-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	scratch = dir
	return simbatest.Main(m)
}
