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
	agent    func(*testing.T) (command []string)
}

var variants = []variant{
	{name: "go", language: "go", agent: goAgent},
	{name: "python-sync", language: "python", option: "sync", agent: pythonAgent},
	{name: "python-asyncio", language: "python", option: "asyncio", agent: pythonAgent},
	{name: "node-ioredis", language: "node", option: "ioredis", agent: nodeAgent},
	{name: "node-redis", language: "node", option: "node-redis", agent: nodeAgent},
	{name: "jvm", language: "jvm", agent: jvmAgent},
}

func goAgent(t *testing.T) []string { return []string{simbatest.Build(t, "tests/clients/agent")} }

// pythonAgent installs the redis-py of requirements.txt in a virtual environment.
func pythonAgent(t *testing.T) []string {
	python := need.Program(t, "python3", "python3-venv")
	venv := filepath.Join("..", "python", ".venv")
	in := func(program string) string { return filepath.Join(venv, "bin", program) }
	if _, err := os.Stat(in("pip")); err != nil {
		prepare(t, ".", python, "-m", "venv", venv)
	}
	prepare(t, ".", in("pip"), "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join("..", "python", "tests", "requirements.txt"))
	return []string{in("python"), filepath.Join("..", "python", "tests", "agent.py")}
}

func nodeAgent(t *testing.T) []string {
	npm, node := need.Program(t, "npm", "npm"), need.Program(t, "node", "nodejs")
	dir := filepath.Join("..", "node")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "typescript")); err != nil {
		prepare(t, dir, npm, "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund")
	}
	prepare(t, dir, npm, "run", "--silent", "build")
	prepare(t, dir, npm, "run", "--silent", "build:test")
	return []string{node, filepath.Join(dir, "build", "agent.js")}
}

func jvmAgent(t *testing.T) []string {
	mvn, java := need.Program(t, "mvn", "maven"), need.Program(t, "java", "default-jdk-headless")
	dir := filepath.Join("..", "jvm")
	path := filepath.Join(dir, "client", "target")
	prepare(t, dir, mvn, "--quiet", "--batch-mode", "-pl", "client", "test-compile", "dependency:build-classpath",
		"-Dmdep.outputFile="+"target/classpath", "-Dmdep.includeScope=test")
	libraries, err := os.ReadFile(filepath.Join(path, "classpath"))
	simbatest.Must(t, err)
	return []string{java, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp",
		filepath.Join(path, "classes") + ":" + filepath.Join(path, "test-classes") + ":" + string(libraries), "io.github.simbaresp.Agent"}
}

// prepare runs a program that builds an agent.
func prepare(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	c := exec.Command(program, args...)
	c.Dir = dir
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
}
