package clienttest

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simba-resp/simba-resp"
	"github.com/simba-resp/simba-resp/client"
	"github.com/simba-resp/simba-resp/client/registry"
	"github.com/simba-resp/simba-resp/resp"
)

const program = `package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/simba-resp/simba-resp/client"
	_ "github.com/simba-resp/simba-resp/client/contend"
	_ "github.com/simba-resp/simba-resp/client/registry"
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

// maxExported is how many names the packages of the client module may export.
const maxExported = 107

func TestTheClientExportsFewNames(t *testing.T) {
	counts, all := make(map[string]int), 0
	must(t, filepath.WalkDir("../../client", func(dir string, e fs.DirEntry, err error) error {
		switch {
		case err != nil || !e.IsDir():
			return err
		case e.Name() == "internal":
			return fs.SkipDir
		}
		n := exported(t, dir)
		counts[dir] = n
		all += n
		return nil
	}))
	if all > maxExported {
		t.Errorf("the client exports %d names, want at most %d; by package: %v", all, maxExported, counts)
	}
}

// exported returns how many types, functions, methods, fields, constants and variables a package
// exports. Methods that an exported type has from an embedded type count, too.
func exported(t *testing.T, dir string) (n int) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	must(t, err)
	var decls []ast.Decl
	for _, name := range files {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			must(t, err)
			decls = append(decls, f.Decls...)
		}
	}
	count := func(names ...*ast.Ident) {
		for _, name := range names {
			if name.IsExported() {
				n++
			}
		}
	}
	methods := make(map[string]bool) // the types whose methods count
	fields := func(list *ast.FieldList) {
		for _, f := range list.List {
			count(f.Names...)
			if len(f.Names) == 0 {
				methods[typeName(f.Type)] = true
			}
		}
	}
	for _, d := range decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			switch spec := spec.(type) {
			case *ast.ValueSpec:
				count(spec.Names...)
			case *ast.TypeSpec:
				if !spec.Name.IsExported() {
					continue
				}
				count(spec.Name)
				methods[spec.Name.Name] = true
				switch of := spec.Type.(type) {
				case *ast.StructType:
					fields(of.Fields)
				case *ast.InterfaceType:
					fields(of.Methods)
				}
			}
		}
	}
	for _, d := range decls {
		if f, ok := d.(*ast.FuncDecl); ok && (f.Recv == nil || methods[typeName(f.Recv.List[0].Type)]) {
			count(f.Name)
		}
	}
	return n
}

// typeName returns the name of T or *T of the package; "" = another kind of type.
func typeName(x ast.Expr) string {
	if star, ok := x.(*ast.StarExpr); ok {
		x = star.X
	}
	if id, ok := x.(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// The rules for names are the server's. It refuses them with the argument's name, and nothing is tried
// again.
func TestInvalidNamesAreRefused(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		work := func(context.Context) error { return nil }
		lock := func(mutex string, o ...client.Option) error { _, err := g.Lock(bg, mutex, o...); return err }
		r := g.registry(t, registry.Config{})
		_, unowned := g.Owner(bg, "a b")
		for _, row := range []struct {
			want string
			err  error
		}{
			{"mutex", lock("")},
			{"mutex", lock("a b")},
			{"mutex", g.Do(bg, "", work)},
			{"mutex", g.Lead(bg, "", work)},
			{"mutex", g.Every(bg, "", client.Schedule{Period: 1}, work)},
			{"mutex", unowned},
			{"mutex", obtain(t, r, "a{b").Lock(bg, r.NewHolder())},
			{"contender", lock("job", client.WithID("two words"))},
			{"contender", lock("job", client.WithID("a@@b"))},
		} {
			if row.err == nil || !strings.Contains(row.err.Error(), "invalid "+row.want) {
				t.Errorf("the error is %v, want invalid %s", row.err, row.want)
			}
		}
		if w.elapsed() != 0 {
			t.Errorf("the errors took %v, want no time", w.elapsed())
		}
	})
}

func TestTheClientTakesTheWindowsThatTheServerTakes(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		g := w.client()
		for _, c := range []struct {
			ttl, transition time.Duration
			taken           bool
		}{
			{simba.MinTTL, 0, true},
			{simba.MinTTL - 1, 0, false},
			{simba.MaxTTL, simba.MaxTransition, true},
			{simba.MaxTTL + time.Millisecond, 0, false},
			{simba.MaxTTL, simba.MaxTransition + time.Millisecond, false},
		} {
			l, err := g.TryLock(bg, "job", client.WithTTL(c.ttl), client.WithTransition(c.transition))
			if (err == nil) != c.taken {
				t.Errorf("TryLock with TTL %v and transition %v returns %v, want success: %v", c.ttl, c.transition, err, c.taken)
			}
			if l != nil {
				_ = l.Unlock(bg)
			}
		}
	})
}

func TestTheClientSubscribesToTheServersChannels(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.contend("owner")
		synctest.Wait()
		g := w.client()
		w.allow(map[string]string{"bob": "~* +@all -simba.next"})
		polls := w.clientOf("bob", client.Options{})
		ctx, cancel := context.WithCancel(bg)
		go func() { _, _ = polls.Lock(ctx, "job", client.WithID("bob:waiter")) }()
		g.watch(t, "job")
		time.Sleep(5 * time.Second)
		want := []string{simba.ContenderChannel("job", "bob:waiter"), simba.MutexChannel("job"), simba.EventChannel("job")}
		if got := w.broker.Channels(resp.KindChannel, ""); !slices.Equal(sorted(got), sorted(want)) {
			t.Errorf("the client subscribes to %q, not %q", got, want)
		}
		cancel()
		must(t, polls.Close())
	})
}

func sorted(list []string) []string { return slices.Sorted(slices.Values(list)) }
