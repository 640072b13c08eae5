package cases

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/simba-resp/simba-resp/tests/clients/builds"
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
	return []string{builds.Python(t, version), filepath.Join("..", "python", "tests", "agent.py")}
}

func nodeAgent(t *testing.T, _ string) []string {
	node, dir := builds.Node(t)
	return []string{node, filepath.Join(dir, "build", "agent.js")}
}

func jvmAgent(t *testing.T, version string) []string {
	client, tests, libraries := builds.JVM(t, version)
	return []string{need.Program(t, "java", "default-jdk-headless"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-cp", strings.Join([]string{client, tests, libraries}, ":"), "io.github.simbaresp.Agent"}
}

// TestEachClientPassesItsOwnTests runs what no case can reach from outside, and the tests of the
// adapters.
func TestEachClientPassesItsOwnTests(t *testing.T) {
	server := "SIMBA_RESP=" + simbatest.Binary(t)
	for _, language := range []struct {
		name string
		run  func(t *testing.T, dir string)
	}{
		{"python", func(t *testing.T, dir string) {
			python, err := filepath.Abs(builds.Python(t, ""))
			simbatest.Must(t, err)
			builds.Run(t, dir, python, "-m", "mypy")
			builds.Run(t, dir, "env", server, python, "-m", "pytest", "--quiet")
		}},
		{"node", func(t *testing.T, dir string) {
			node, built := builds.Node(t)
			tests, err := filepath.Glob(filepath.Join(built, "build", "*.test.js"))
			if err != nil || len(tests) == 0 {
				t.Fatalf("no tests: %v", err)
			}
			for i := range tests {
				tests[i] = filepath.Join("build", filepath.Base(tests[i]))
			}
			builds.Run(t, dir, "env", append([]string{server, node, "--test"}, tests...)...)
		}},
		{"jvm", func(t *testing.T, dir string) {
			builds.JVM(t, "")
			builds.Run(t, dir, "env", server, need.Program(t, "mvn", "maven"), "--quiet", "--batch-mode", "test")
		}},
	} {
		t.Run(language.name, func(t *testing.T) {
			t.Parallel()
			language.run(t, filepath.Join("..", language.name))
		})
	}
}
