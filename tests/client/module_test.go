package clienttest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const program = `package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	_ "github.com/simba-resp/simba-resp/client/registry"
	_ "github.com/simba-resp/simba-resp/client/worker"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:7379", ContextTimeoutEnabled: true})
	c, err := client.New(rdb, client.Options{})
	if err == nil {
		err = c.Do(context.Background(), "report", func(context.Context) error { return nil })
	}
	fmt.Println(err)
}
`

// A program that imports the client's packages must not need modules of the server.
func TestAProgramNeedsOnlyTheModulesOfTheClient(t *testing.T) {
	source, err := filepath.Abs("../../client")
	must(t, err)
	dir := t.TempDir()
	for name, text := range map[string]string{
		"main.go": program,
		"go.mod": "module example.com/program\n\ngo 1.26.0\n\n" +
			"require github.com/simba-resp/simba-resp/client v0.0.0\n\n" +
			"replace github.com/simba-resp/simba-resp/client => " + source + "\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	build := exec.Command("go", "build", "-o", os.DevNull, ".")
	build.Dir = dir
	// Without the checksum database, the build uses only the module cache.
	build.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "GOSUMDB=off")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	must(t, err)
	if !strings.Contains(string(sums), "github.com/redis/go-redis/v9 ") {
		t.Errorf("go.sum does not name go-redis:\n%s", sums)
	}
	for _, module := range []string{"pebble", "gopher-lua", "mysql", "/zk", "redcon", "goleak", "simba-resp"} {
		if strings.Contains(string(sums), module) {
			t.Errorf("go.sum names %s, a module of the server:\n%s", module, sums)
		}
	}
	list := exec.Command("go", "list", "-deps", ".")
	list.Dir, list.Env = dir, build.Env
	packages, err := list.Output()
	must(t, err)
	for _, p := range strings.Fields(string(packages)) {
		if strings.HasPrefix(p, "github.com/simba-resp/simba-resp") && !strings.HasPrefix(p, "github.com/simba-resp/simba-resp/client") {
			t.Errorf("the program depends on %s, a package of the server", p)
		}
	}
}

func TestTheClientRequiresOnlyGoRedis(t *testing.T) {
	edit := exec.Command("go", "mod", "edit", "-json")
	edit.Dir = "../../client"
	out, err := edit.Output()
	must(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Replace []any
	}
	must(t, json.Unmarshal(out, &mod))
	var direct []string
	for _, r := range mod.Require {
		if !r.Indirect {
			direct = append(direct, r.Path)
		}
	}
	if len(direct) != 1 || direct[0] != "github.com/redis/go-redis/v9" || len(mod.Replace) != 0 {
		t.Errorf("client/go.mod requires %q and replaces %v, want only go-redis and no replacement", direct, mod.Replace)
	}
}
