package cases

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// variant is a client library on one Redis client.
type variant struct {
	name     string
	language string
	option   string // of the agent's request open
	version  string // of the Redis client, which only make clients tests; "" = the one that make test tests
	agent    func(t *testing.T, version string) (command []string)
}

var variants = []variant{
	{name: "go", language: "go", agent: goAgent},
	{name: "python-sync", language: "python", option: "sync", agent: pythonAgent},
	{name: "python-asyncio", language: "python", option: "asyncio", agent: pythonAgent},
	{name: "node-ioredis", language: "node", option: "ioredis", agent: nodeAgent},
	{name: "node-redis", language: "node", option: "node-redis", agent: nodeAgent},
	{name: "jvm", language: "jvm", agent: jvmAgent},

	{name: "python-sync", language: "python", option: "sync", version: "5.0.8", agent: pythonAgent},
	{name: "python-asyncio", language: "python", option: "asyncio", version: "5.0.8", agent: pythonAgent},
	{name: "python-sync", language: "python", option: "sync", version: "6.4.0", agent: pythonAgent},
	{name: "python-asyncio", language: "python", option: "asyncio", version: "6.4.0", agent: pythonAgent},
	{name: "python-sync", language: "python", option: "sync", version: "7.4.1", agent: pythonAgent},
	{name: "python-asyncio", language: "python", option: "asyncio", version: "7.4.1", agent: pythonAgent},
	{name: "node-ioredis", language: "node", option: "ioredis6", version: "6", agent: nodeAgent},
	{name: "jvm", language: "jvm", version: "7.7.0.RELEASE", agent: jvmAgent},
}

func goAgent(t *testing.T, _ string) []string {
	return []string{simbatest.Build(t, "tests/clients/agent")}
}

func pythonAgent(t *testing.T, version string) []string {
	return []string{venv(t, version), filepath.Join("..", "python", "tests", "agent.py")}
}

// venv returns the Python of a virtual environment with a version of redis-py. "" means that of
// requirements.txt.
func venv(t *testing.T, version string) (python string) {
	dir := filepath.Join("..", "python", ".venv"+version)
	python = filepath.Join(dir, "bin", "python")
	system := need.Program(t, "python3", "python3-venv")
	if _, err := os.Stat(filepath.Join(dir, "bin", "pip")); err != nil {
		prepare(t, ".", system, "-m", "venv", dir)
	}
	install := []string{"-m", "pip", "install", "--quiet", "--disable-pip-version-check"}
	if version == "" {
		prepare(t, ".", python, append(install, "-r", filepath.Join("..", "python", "tests", "requirements.txt"))...)
	} else {
		prepare(t, ".", python, append(install, "redis=="+version)...)
	}
	return python
}

func nodeAgent(t *testing.T, _ string) []string {
	dir := filepath.Join("..", "node")
	npm := npm(t, dir)
	prepare(t, dir, npm, "run", "--silent", "build")
	prepare(t, dir, npm, "run", "--silent", "build:test")
	return []string{need.Program(t, "node", "nodejs"), filepath.Join(dir, "build", "agent.js")}
}

// npm returns the path of npm, with which it installs what the client for Node and its tests need.
func npm(t *testing.T, dir string) (program string) {
	program = need.Program(t, "npm", "npm")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "typescript")); err != nil {
		prepare(t, dir, program, "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	}
	return program
}

func jvmAgent(t *testing.T, version string) []string {
	mvn, java := need.Program(t, "mvn", "maven"), need.Program(t, "java", "default-jdk-headless")
	dir := filepath.Join("..", "jvm")
	path := filepath.Join(dir, "client", "target")
	args := []string{"--quiet", "--batch-mode", "-pl", "client", "test-compile", "dependency:build-classpath",
		"-Dmdep.outputFile=" + "target/classpath", "-Dmdep.includeScope=test"}
	if version != "" {
		args = append(args, "-Dlettuce="+version)
	}
	prepare(t, dir, mvn, args...)
	libraries, err := os.ReadFile(filepath.Join(path, "classpath"))
	simbatest.Must(t, err)
	return []string{java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
		filepath.Join(path, "classes") + ":" + filepath.Join(path, "test-classes") + ":" + string(libraries), "io.github.simbaresp.Agent"}
}

// TestEachClientPassesItsOwnTests runs what no case can reach from outside, and the tests of the
// adapters.
func TestEachClientPassesItsOwnTests(t *testing.T) {
	t.Setenv("SIMBA_RESP", simbatest.Binary(t))
	for _, language := range []struct {
		name string
		run  func(t *testing.T, dir string)
	}{
		{"python", func(t *testing.T, dir string) {
			python, err := filepath.Abs(venv(t, ""))
			simbatest.Must(t, err)
			prepare(t, dir, python, "-m", "mypy")
			prepare(t, dir, python, "-m", "pytest", "--quiet")
		}},
		{"node", func(t *testing.T, dir string) { prepare(t, dir, npm(t, dir), "test") }},
		{"jvm", func(t *testing.T, dir string) {
			need.Program(t, "javac", "default-jdk-headless")
			prepare(t, dir, need.Program(t, "mvn", "maven"), "--quiet", "--batch-mode", "test")
		}},
	} {
		t.Run(language.name, func(t *testing.T) { language.run(t, filepath.Join("..", language.name)) })
	}
}

// prepare runs a program that builds or tests a client.
func prepare(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	c := exec.Command(program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}
