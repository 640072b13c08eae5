package clients

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/simba-resp/simba-resp/tests/clients/builds"
	"github.com/simba-resp/simba-resp/tests/need"
	"github.com/simba-resp/simba-resp/tests/simbatest"
)

var all = flag.Bool("all", false, "run the code of docs/guides/clients.md in all languages, not only in those whose tools make test installs")

const (
	guide     = "guides/clients.md"
	guidePort = "7379"
)

// language is one whose code the guide shows, in a block of that name.
type language struct {
	name      string
	downloads bool // make test does not install what it needs, so it runs with -all only
	// build writes and compiles a program in a new folder, and returns the command that runs it. It
	// skips the test if the language is missing.
	build func(t *testing.T, dir, code string) []string
	// frame is the program round the examples of a language with a client: imports, helpers and
	// client; the place of the examples; the end.
	frame [3]string
	// when is the beginning of an if statement, with the number of an example.
	when, end string
}

// code returns the block of the guide, with the address of s.
func (l language) code(t *testing.T, s *simbatest.Server) string {
	t.Helper()
	return strings.ReplaceAll(strings.Join(simbatest.DocsBlock(t, guide, l.name), "\n"), guidePort, s.Port())
}

var others = []language{
	{name: "ruby", build: func(t *testing.T, dir, code string) []string {
		ruby := need.Program(t, "ruby", "ruby-redis")
		if err := exec.Command(ruby, "-e", `require "redis"`).Run(); err != nil {
			need.Missing(t, "no redis-rb: apt-get install ruby-redis: %v", err)
		}
		return []string{ruby, builds.Write(t, filepath.Join(dir, "main.rb"), code)}
	}},
	{name: "php", build: func(t *testing.T, dir, code string) []string {
		php := need.Program(t, "php", "php-redis")
		if err := exec.Command(php, "-r", `exit(extension_loaded("redis") ? 0 : 1);`).Run(); err != nil {
			need.Missing(t, "no phpredis: apt-get install php-redis: %v", err)
		}
		return []string{php, builds.Write(t, filepath.Join(dir, "main.php"), code)}
	}},
	{name: "rust", downloads: true, build: func(t *testing.T, dir, code string) []string {
		cargo := need.Program(t, "cargo", "cargo")
		builds.Write(t, filepath.Join(dir, "Cargo.toml"), "[package]\nname = \"snippet\"\nedition = \"2021\"\n\n[dependencies]\nredis = \"1.8\"\nrand = \"0.10\"\n")
		builds.Write(t, filepath.Join(dir, "src/main.rs"), code)
		builds.Run(t, dir, cargo, "build", "--quiet")
		return []string{filepath.Join(dir, "target/debug/snippet")}
	}},
	{name: "dotnet", downloads: true, build: func(t *testing.T, dir, code string) []string {
		dotnet := need.Program(t, "dotnet", "dotnet-sdk, which Debian lacks")
		builds.Run(t, dir, dotnet, "new", "console", "--name", "snippet", "--output", dir)
		builds.Run(t, dir, dotnet, "add", "package", "StackExchange.Redis")
		builds.Write(t, filepath.Join(dir, "Program.cs"), code)
		builds.Run(t, dir, dotnet, "build", "--output", "out")
		return []string{dotnet, filepath.Join(dir, "out/snippet.dll")}
	}},
}

func TestTheGuidesSnippetsWaitRenewAndRelease(t *testing.T) {
	for _, l := range others {
		if l.downloads && !*all {
			continue
		}
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := simbatest.Start(t)
			command := l.build(t, t.TempDir(), l.code(t, s))
			c := simbatest.Conn(t, s)
			simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "report", "first", 600_000)
			p := simbatest.Run(t, command[0], command[1:]...)
			need.Await(t, "the snippet waits", func() bool {
				waiters, err := redis.Values(c.Do("SIMBA.QUEUE", "report"))
				return err == nil && len(waiters) == 1
			})
			simbatest.DoOne(t, c, "SIMBA.RELEASE", "report", "first")
			if code := p.Wait(t); code != 0 {
				t.Fatalf("the snippet exits with code %d:\n%s", code, p.Output())
			}
			history, err := redis.Values(c.Do("SIMBA.HISTORY", "report", "COUNT", 2))
			simbatest.Must(t, err)
			text := fmt.Sprintf("%s", history)
			if !regexp.MustCompile(`acquired owner report-[0-9a-f]{16,32} .*released owner report-`).MatchString(text) {
				t.Errorf("the last events are %s, want that the snippet has acquired and released", text)
			}
			stats, err := redis.String(c.Do("INFO", "commandstats"))
			simbatest.Must(t, err)
			if !regexp.MustCompile(`cmdstat_simba\.guard:calls=1,.*failed_calls=0`).MatchString(stats) {
				t.Errorf("commandstats are\n%s\nwant one SIMBA.GUARD without an error", stats)
			}
		})
	}
}

var withClients = []language{
	{
		name: "go", when: "if os.Args[1] == %q {\n", end: "\n}\n",
		frame: [3]string{`package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
)

const token = 1

func write(token uint64) error {
	fmt.Println("write", token)
	time.Sleep(100 * time.Millisecond)
	return nil
}

func cleanup(token uint64) error {
	fmt.Println("cleanup", token)
	return nil
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
`, "\n_ = err\n", "return nil\n}\n"},
		build: func(t *testing.T, dir, code string) []string {
			program := filepath.Join(dir, "examples")
			builds.Run(t, "../..", "go", "build", "-o", program, builds.Write(t, filepath.Join(dir, "main.go"), code))
			return []string{program}
		},
	},
	{
		name: "python", when: "if sys.argv[1] == %q:\n",
		frame: [3]string{`import sys, time

token = 1

def write(token):
    print("write", token, flush=True)
    time.sleep(0.1)

def cleanup(token):
    print("cleanup", token, flush=True)

sys.path.insert(0, "../../clients/python/src")
sys.stdout.reconfigure(line_buffering=True)
`, "\n", ""},
		build: func(t *testing.T, dir, code string) []string {
			python := builds.Python(t, "")
			return []string{python, builds.Write(t, filepath.Join(dir, "main.py"), code)}
		},
	},
	{
		name: "node", when: "if (process.argv[2] === %q) {\n", end: "\n}\n",
		frame: [3]string{`const token = 1;

async function write(token) {
  console.log("write", token);
  await new Promise((resolve) => setTimeout(resolve, 100));
}

async function cleanup(token) {
  console.log("cleanup", token);
}

`, "\n", "process.exit();\n"},
		build: func(t *testing.T, dir, code string) []string {
			node, source := builds.Node(t)
			source, err := filepath.Abs(source)
			simbatest.Must(t, err)
			main := builds.Write(t, filepath.Join(dir, "main.mjs"), code)
			simbatest.Must(t, os.Mkdir(filepath.Join(dir, "node_modules"), 0o755))
			simbatest.Must(t, os.Symlink(source, filepath.Join(dir, "node_modules/simba-resp")))
			simbatest.Must(t, os.Symlink(filepath.Join(source, "node_modules/ioredis"), filepath.Join(dir, "node_modules/ioredis")))
			return []string{node, main}
		},
	},
	{
		name: "jvm", when: "if (args[0].equals(%q)) {\n", end: "\n}\n",
		frame: [3]string{"", `
        for (boolean loaded = false; !loaded; ) { // on a busy machine, Java loads classes for longer than the timeout
            try {
                client.owner("other");
                loaded = true;
            } catch (SimbaException.Unavailable e) {
                System.err.println(e);
            }
        }
`, `System.exit(0);
    }

    static final long token = 1;

    static void write(long token) throws InterruptedException {
        System.out.println("write " + token);
        Thread.sleep(100);
    }

    static void cleanup(long token) {
        System.out.println("cleanup " + token);
    }
}
`},
		build: func(t *testing.T, dir, code string) []string {
			client, _, libraries := builds.JVM(t, "")
			path := client + ":" + libraries
			// In Java, the imports come before the class.
			imports := regexp.MustCompile(`(?m)^import .*\n`)
			head := strings.Join(imports.FindAllString(code, -1), "") +
				"\npublic class Main {\n    public static void main(String[] args) throws Exception {\n"
			builds.Run(t, ".", need.Program(t, "javac", "default-jdk-headless"), "-d", dir, "-cp", path, builds.Write(t, filepath.Join(dir, "Main.java"), head+imports.ReplaceAllString(code, "")))
			return []string{"java", "-XX:TieredStopAtLevel=1", "-cp", path + ":" + dir, "Main"}
		},
	},
}

// comment begins an example of the guide.
var comment = regexp.MustCompile(`(?m)^(?:#|//) (?:\d\.|…) .*\n`)

// program returns a program with all examples of the guide. Its argument chooses one, from 1 on.
func (l language) program(t *testing.T, s *simbatest.Server) string {
	t.Helper()
	code := l.code(t, s)
	examples := comment.Split(code, -1)
	if len(examples) != 7 {
		t.Fatalf("the guide has %d examples for %s, want the two parts of the last, and four", len(examples)-1, l.name)
	}
	text := l.frame[0] + examples[0] + l.frame[1]
	for i, example := range examples[1:] {
		if l.end == "" {
			example = strings.ReplaceAll("\n"+strings.TrimSpace(example)+"\n", "\n", "\n    ")
		}
		text += fmt.Sprintf(l.when, strconv.Itoa(i+1)) + example + l.end + "\n"
	}
	return text + l.frame[2]
}

func TestTheGuidesExamplesOfEachClient(t *testing.T) {
	for _, l := range withClients {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := simbatest.Start(t)
			c := simbatest.Conn(t, s)
			command := l.build(t, t.TempDir(), l.program(t, s))
			run := func(example string) *simbatest.Process {
				return simbatest.Run(t, command[0], append(command[1:], example)...)
			}
			free := func() {
				if owner, err := c.Do("SIMBA.OWNER", "report"); owner != nil || err != nil {
					t.Errorf("SIMBA.OWNER returns %s, %v; want that the mutex is free", owner, err)
				}
			}

			lock := run("1")
			lock.Wants(t, `^write \d+$`)
			if code := lock.Wait(t); code != 0 {
				t.Errorf("a lock: code %d\n%s", code, lock.Output())
			}
			free()

			simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "report", "somebody", 600_000)
			try := run("2")
			try.Wants(t, `^owned by .*somebody`)
			if code := try.Wait(t); code != 0 {
				t.Errorf("a lock without waiting: code %d\n%s", code, try.Output())
			}
			simbatest.DoOne(t, c, "SIMBA.RELEASE", "report", "somebody")

			leader := run("3")
			first, line := leader.WantsAfter(t, 0, `^write (\d+)$`)
			simbatest.DoOne(t, c, "SIMBA.BREAK", "report")
			for next := first; next[1] == first[1]; {
				next, line = leader.WantsAfter(t, line, `^write (\d+)$`)
			}
			leader.Kill()
			simbatest.DoOne(t, c, "SIMBA.BREAK", "report")

			job := run("4")
			job.Wants(t, `^cleanup \d+$`)
			job.Kill()

			watch := run("5")
			watch.Wants(t, `^leader:`)
			simbatest.DoRecord(t, c, "SIMBA.ACQUIRE", "report", "somebody", 600_000)
			watch.Wants(t, `^leader: .*somebody`)
			watch.Kill()

			refusal := run("6")
			if code := refusal.Wait(t); code == 0 || !strings.Contains(refusal.Output(), "a former leader") {
				t.Errorf("a resource that gets an old token: code %d\n%s", code, refusal.Output())
			}
		})
	}
}
