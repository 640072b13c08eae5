package simbatest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/simba-resp/simba-resp/tests/conformance/stores"
	"github.com/simba-resp/simba-resp/tests/need"
)

// dir is the folder for the programs of this run; "" before Main.
var dir string

// parallel is the number of tests that run at a time. Tests mostly wait for other processes, so it
// exceeds the number of processors.
const parallel = "16"

// Main runs m, mostly a *testing.M, and returns its exit code. It also removes the programs that
// Build built. Without the flag -parallel, 16 parallel tests run at a time.
func Main(m interface{ Run() int }) int {
	flag.Parse()
	if !given("test.parallel") {
		_ = flag.Set("test.parallel", parallel) // fails only in a program without this flag
	}
	made, err := os.MkdirTemp("", "simba-resp-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(made)
	dir = made
	heedSignals()
	return m.Run()
}

// heedSignals catches the signals that nohup(1), or a shell for a background command, has made this
// process ignore. The programs that the tests start would ignore them too.
func heedSignals() {
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
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

// Build builds a program of this module, such as "examples/go/lock", and returns the path of the
// result. Within a run, it builds each program once. Call it in the goroutine of the test.
func Build(t stores.TB, program string) string {
	t.Helper()
	if dir == "" {
		t.Fatal("simbatest.Build needs a TestMain that calls simbatest.Main")
	}
	mu.Lock()
	b := built[program]
	if b == nil {
		b = sync.OnceValues(func() (string, error) { return build(program) })
		built[program] = b
	}
	mu.Unlock()
	path, err := b()
	Must(t, err)
	return path
}

// build builds a program, and returns its path in this run. Linking with the race detector takes
// many seconds, so all test packages share one file in bin/, guarded by a file lock. A later build
// may replace this file, so each run has its own hard link.
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
	defer lock.Close() // releases the file lock
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
	return path, copyProgram(path, latest) // dir is on another file system than bin/
}

func copyProgram(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}

// clone returns the nearest folder with a go.mod, from the test's folder upwards.
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
			return "", errors.New("no go.mod in the current folder or above")
		}
	}
}

// NeedRedisTools skips the test if redis-cli or redis-benchmark is not installed. With CI=true it
// fails the test.
func NeedRedisTools(t testing.TB) {
	t.Helper()
	for _, name := range []string{"redis-cli", "redis-benchmark"} {
		need.Program(t, name, "redis-tools")
	}
}

// DocsBlock returns the lines of the code block between the markers <!-- name --> and <!-- /name
// --> of a page in docs/.
func DocsBlock(t testing.TB, page, name string) []string {
	t.Helper()
	root, err := clone()
	Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	Must(t, err)
	_, rest, ok := strings.Cut(string(text), "<!-- "+name+" -->\n")
	block, _, ended := strings.Cut(rest, "\n<!-- /"+name+" -->")
	lines := strings.Split(block, "\n")
	if !ok || !ended || len(lines) < 3 {
		t.Fatalf("docs/%s has no code block between the markers of %s", page, name)
	}
	return lines[1 : len(lines)-1] // without the fences
}
