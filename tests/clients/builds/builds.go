// Package builds installs and builds the clients for other languages, for the tests that run them. A
// process does so once for each language and version of its Redis client. Processes share the results,
// which lie in the folders of the clients. A file lock lets one of them build at a time, and what is
// up to date stays as it is, because another process may be running it.
//
// The paths are relative to a folder two below the root, as are those of the packages that use it.
package builds

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

var clients = filepath.Join("..", "..", "clients")

var (
	mu   sync.Mutex // guards done
	done = make(map[string]func() error)
)

// once calls build once in this process, while no other process builds in dir. Each caller gets its
// error.
func once(t need.TB, key, dir string, build func() error) {
	t.Helper()
	mu.Lock()
	b := done[key]
	if b == nil {
		b = sync.OnceValue(func() error {
			lock, err := os.Open(dir)
			if err != nil {
				return err
			}
			defer lock.Close() // releases the file lock
			if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
				return err
			}
			return build()
		})
		done[key] = b
	}
	mu.Unlock()
	if err := b(); err != nil {
		t.Fatalf("build %s: %v", key, err)
	}
}

// isNewer reports whether a file is there, and is newer than all files of the sources.
func isNewer(file string, sources ...string) bool {
	info, err := os.Stat(file)
	if err != nil {
		return false
	}
	for _, source := range sources {
		err = filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if i, err := d.Info(); err != nil || !i.ModTime().Before(info.ModTime()) {
				return fmt.Errorf("%s is newer than %s: %w", path, file, err)
			}
			return nil
		})
		if err != nil {
			return false
		}
	}
	return true
}

// touch creates a file, or makes it new.
func touch(file string) error {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	return os.Chtimes(file, time.Now(), time.Now())
}

func run(dir, program string, args ...string) error {
	c := exec.Command(program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w\n%s", program, args, err, out)
	}
	return nil
}

// Run runs a program in a folder. The test fails if the program does.
func Run(t need.TB, dir, program string, args ...string) {
	t.Helper()
	if err := run(dir, program, args...); err != nil {
		t.Fatalf("%v", err)
	}
}

// Write writes a file, and creates its folder. It returns the path.
func Write(t need.TB, path, text string) string {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	return path
}

// Python returns the Python of a virtual environment with what the tests of the client need, or only
// with a version of redis-py. "" means the one of requirements.txt.
func Python(t need.TB, version string) (python string) {
	t.Helper()
	system := need.Program(t, "python3", "python3-venv")
	dir := filepath.Join(clients, "python")
	requirements := filepath.Join(dir, "tests", "requirements.txt")
	venv := filepath.Join(dir, ".venv"+version)
	python = filepath.Join(venv, "bin", "python")
	once(t, "python"+version, dir, func() error {
		stamp := filepath.Join(venv, "installed")
		if isNewer(stamp, requirements) {
			return nil
		}
		packages := []string{"-r", requirements}
		if version != "" {
			packages = []string{"redis==" + version}
		}
		if err := run(".", system, "-m", "venv", venv); err != nil {
			return err
		}
		if err := run(".", python, append([]string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, packages...)...); err != nil {
			return err
		}
		return touch(stamp)
	})
	return python
}

// Node builds the package and its tests. It returns the path of Node.js, and the folder of the
// package: its tests and the agent are in the folder build there.
func Node(t need.TB) (node, dir string) {
	t.Helper()
	npm, node := need.Program(t, "npm", "npm"), need.Program(t, "node", "nodejs")
	dir = filepath.Join(clients, "node")
	once(t, "node", dir, func() error {
		if !isNewer(filepath.Join(dir, "node_modules", ".package-lock.json"), filepath.Join(dir, "package-lock.json")) {
			if err := run(dir, npm, "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
				return err
			}
		}
		var sources []string
		for _, name := range []string{"src", "test", "tools", "package.json", "package-lock.json", "tsconfig.json", "tsconfig.cjs.json"} {
			sources = append(sources, filepath.Join(dir, name))
		}
		stamp := filepath.Join(dir, "build", "built")
		if isNewer(stamp, sources...) {
			return nil
		}
		for _, script := range []string{"build", "build:test"} {
			if err := run(dir, npm, "run", "--silent", script); err != nil {
				return err
			}
		}
		return touch(stamp)
	})
	return node, dir
}

// JVM compiles the client and its tests. It returns the class path of the client, that of its tests,
// and that of the libraries, with a version of Lettuce. "" means the version that the client is
// compiled with.
func JVM(t need.TB, version string) (client, tests, libraries string) {
	t.Helper()
	mvn := need.Program(t, "mvn", "maven")
	need.Program(t, "javac", "default-jdk-headless")
	dir := filepath.Join(clients, "jvm")
	target := filepath.Join(dir, "client", "target")
	build := func(version string, goals ...string) {
		t.Helper()
		once(t, "jvm"+version, dir, func() error {
			stamp := filepath.Join(target, "built"+version)
			if isNewer(stamp, filepath.Join(dir, "pom.xml"), filepath.Join(dir, "client", "pom.xml"), filepath.Join(dir, "client", "src")) {
				return nil
			}
			args := append([]string{"--quiet", "--batch-mode", "-pl", "client"}, goals...)
			args = append(args, "-Dmdep.outputFile=target/classpath"+version, "-Dmdep.includeScope=test")
			if version != "" {
				args = append(args, "-Dlettuce="+version)
			}
			if err := run(dir, mvn, args...); err != nil {
				return err
			}
			return touch(stamp)
		})
	}
	build("", "test-compile", "dependency:build-classpath")
	if version != "" {
		build(version, "dependency:build-classpath")
	}
	text, err := os.ReadFile(filepath.Join(target, "classpath"+version))
	if err != nil {
		t.Fatalf("%v", err)
	}
	return filepath.Join(target, "classes"), filepath.Join(target, "test-classes"), strings.TrimSpace(string(text))
}
