package main

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const (
	module = "github.com/simba-resp/simba-resp"
	client = module + "/client"
)

// mayImport lists what each package may import beyond the standard library. The lists keep the
// layers apart: engine, persist and the backends import neither resp nor commands. Nor do the
// backends import each other.
//
// In a list, a package of this project stands only for itself. A name of another module stands for
// all packages of that module. Test files, and packages that mayImport does not list (tests,
// examples), may import everything but the program.
var mayImport = map[string][]string{
	"":                   {},
	"access":             {},
	"credentials":        {},
	"history":            {module},
	"resp":               {module, "golang.org/x/sys", "github.com/tidwall/redcon"},
	"script":             {module + "/resp", "github.com/yuin/gopher-lua"},
	"commands":           {module, module + "/access", module + "/resp", module + "/script"},
	"engine":             {module, module + "/history", "golang.org/x/sys"},
	"persist":            {module, module + "/persist/journal", "github.com/cockroachdb/pebble/v2", "golang.org/x/sys"},
	"monitor":            {module, module + "/commands", module + "/resp", module + "/persist", module + "/backends/proxy", "github.com/prometheus/client_golang"},
	"persist/journal":    {"github.com/cespare/xxhash/v2", "github.com/cockroachdb/pebble/v2"},
	"backends/proxy":     {module, module + "/history"},
	"backends/redis":     {module, module + "/backends/proxy", module + "/credentials", "github.com/redis/go-redis/v9"},
	"backends/mysql":     {module, module + "/backends/proxy", module + "/credentials", "github.com/go-sql-driver/mysql"},
	"backends/zookeeper": {module, module + "/backends/proxy", "github.com/go-zookeeper/zk"},

	// The CLI knows only the server's protocol, and the files of a login.
	"cli": {module + "/credentials", "github.com/BurntSushi/toml", "github.com/redis/go-redis/v9", "github.com/spf13/cobra", "golang.org/x/sys", "golang.org/x/term"},

	"wrapper": {client, "golang.org/x/sys"},

	// A module of its own, which imports nothing of the server.
	"client":                     {client + "/internal/callbacks", client + "/internal/contend", client + "/internal/names", client + "/internal/suspend", "github.com/redis/go-redis/v9"},
	"client/worker":              {client, client + "/internal/callbacks", client + "/internal/contend"},
	"client/registry":            {client, client + "/internal/contend", client + "/internal/names"},
	"client/internal":            {},
	"client/internal/testserver": {client, "github.com/redis/go-redis/v9"},

	// A module of its own, so that users of the client do not download the modules of the server.
	"client/simbatest": {module, module + "/commands", module + "/engine", module + "/resp", "github.com/redis/go-redis/v9"},
}

// program is the folder of the main packages, which no package may import.
const program = module + "/cmd"

var imports = &analysis.Analyzer{
	Name: "imports",
	Doc:  "check that imports follow the order of the layers",
	Run: func(pass *analysis.Pass) (any, error) {
		allowed, limited := rule(pass.Pkg.Path())
		for _, f := range pass.Files {
			test := isTest(fileName(pass, f))
			for _, spec := range f.Imports {
				name, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return nil, err
				}
				switch {
				case within(name, program):
					pass.Reportf(spec.Pos(), "no package may import %s: it belongs to the program", name)
				case limited && !test && !isStandard(name) && !allows(allowed, name):
					pass.Reportf(spec.Pos(), "%s may not import %s", pass.Pkg.Path(), name)
				}
			}
		}
		return nil, nil
	},
}

// rule returns the entry of mayImport for a package, or for the closest folder above it. If there
// is none, limited is false.
func rule(pkg string) (allowed []string, limited bool) {
	if pkg == module {
		return mayImport[""], true
	}
	folder, ours := strings.CutPrefix(pkg, module+"/")
	for ours && folder != "" {
		if allowed, limited = mayImport[folder]; limited {
			return allowed, true
		}
		folder = folder[:max(strings.LastIndexByte(folder, '/'), 0)]
	}
	return nil, false
}

func allows(allowed []string, name string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		return a == name || !within(a, module) && within(name, a)
	})
}

// within reports whether the package name is root or is below it.
func within(name, root string) bool { return name == root || strings.HasPrefix(name, root+"/") }

// isStandard reports whether a package is in the standard library. Other package names begin with a
// domain.
func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}
