package simbatest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/simba-resp/simba-resp/backends/backendtest/stores"
)

// dir is where the server is built; "" until Main has made it.
var dir string

// parallel is the number of tests that run at a time. They mostly wait for other processes.
const parallel = "16"

// Main runs the tests (a *testing.M), or a program that is no test. Unless -parallel is given, 16
// parallel tests run at a time. It removes what was built for them, and returns the exit code.
func Main(m interface{ Run() int }) int {
	flag.Parse()
	if !given("test.parallel") {
		_ = flag.Set("test.parallel", parallel) // a test has the flag, and it takes a number
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

// Build builds a program of this module, once, and returns its path: "examples/go/lock". It must be
// called in the test's own goroutine.
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

// build links a program and returns its path for this run. Linking takes many seconds with the race
// detector. So the tests of all packages share the program below bin/, and a file lock guards it.
// go build skips a program that is up to date, and otherwise replaces the file. So each run keeps a
// hard link to its version.
func build(program string) (string, error) {
	root, err := clone()
	if err != nil {
		return "", err
	}
	name := strings.ReplaceAll(program, "/", "-")
	shared := filepath.Join(root, "bin", "tests"+raceFlag)
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(shared, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close() // unlocks it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	latest, path := filepath.Join(shared, name), filepath.Join(dir, name)
	if out, err := exec.Command("go", "build", raceFlag, "-o", latest, module+program).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	if os.Link(latest, path) == nil {
		return path, nil
	}
	return path, copyProgram(path, latest) // dir is on another file system
}

func copyProgram(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}

// clone returns the folder of the go.mod above the tests that run.
func clone() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; folder = filepath.Dir(folder) {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("there is no go.mod above the tests")
		}
	}
}
