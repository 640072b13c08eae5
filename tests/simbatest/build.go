package simbatest

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// dir is where the server is built; "" until Main has made it.
var dir string

// parallel is how many tests run at a time: they mostly wait for other processes.
const parallel = "16"

// Main runs the tests (a *testing.M), 16 parallel ones at a time unless -parallel is given, or a
// program that is no test, and removes what was built for them. It returns the process' exit code.
func Main(m interface{ Run() int }) int {
	flag.Parse()
	if !given("test.parallel") {
		_ = flag.Set("test.parallel", parallel) // in a test it is there, and takes a number
	}
	made, err := os.MkdirTemp("", "simba-resp-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(made)
	dir = made
	return m.Run()
}

func given(name string) (is bool) {
	flag.Visit(func(f *flag.Flag) { is = is || f.Name == name })
	return is
}

const module = "github.com/simba-resp/simba-resp/"

var (
	mu    sync.Mutex // guards built
	built = make(map[string]func() (string, error))
)

// Binary returns the path of the server's program.
func Binary(t stores.TB) string {
	t.Helper()
	return Build(t, "cmd/simba-resp")
}

// Build builds a program of this module, once, and returns its path: "examples/go/lock". It must
// be called in the test's own goroutine.
func Build(t stores.TB, program string) string {
	t.Helper()
	if dir == "" {
		t.Fatal("TestMain does not call simbatest.Main")
	}
	mu.Lock()
	b := built[program]
	if b == nil {
		b = sync.OnceValues(func() (string, error) { return build(program) })
		built[program] = b
	}
	mu.Unlock()
	path, err := b()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func build(program string) (string, error) {
	path := filepath.Join(dir, strings.ReplaceAll(program, "/", "-"))
	if out, err := exec.Command("go", "build", raceFlag, "-o", path, module+program).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return path, nil
}
