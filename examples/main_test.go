// Package examples_test runs the examples as people do: two processes against a real server, one of
// which is killed.
package examples_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// scratch is a folder for all tests.
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
