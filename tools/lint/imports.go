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

// mayImport lists what each package may import beyond the standard library. A package imports only
// package simba, which has the vocabulary, and packages to its right, but no sibling:
//
//	cmd → resp → commands → simba.Backend → engine → Journal → persist
//
// In the lists, the name of a package of this project means this package only. The name of another
// module means all its packages. Test files, and packages that are not listed (tests, examples),
// may import everything but the program.
var mayImport = map[string][]string{
	"":                   {},
	"access":             {},
	"history":            {module},
	"resp":               {module, module + "/resp/poll", "github.com/tidwall/redcon"},
	"resp/poll":          {"golang.org/x/sys"},
	"script":             {module + "/resp", "github.com/yuin/gopher-lua"},
	"commands":           {module, module + "/access", module + "/resp", module + "/script"},
	"engine":             {module, module + "/history", "golang.org/x/sys"},
	"persist":            {module, module + "/persist/journal", "github.com/cockroachdb/pebble/v2", "golang.org/x/sys"},
	"monitor":            {module, module + "/commands", module + "/resp", module + "/persist", module + "/backends/proxy", "github.com/prometheus/client_golang"},
	"persist/journal":    {"github.com/cespare/xxhash/v2", "github.com/cockroachdb/pebble/v2"},
	"backends/proxy":     {module, module + "/history"},
	"backends/redis":     {module, module + "/backends/proxy", "github.com/redis/go-redis/v9"},
	"backends/mysql":     {module, module + "/backends/proxy", "github.com/go-sql-driver/mysql"},
	"backends/zookeeper": {module, module + "/backends/proxy", "github.com/go-zookeeper/zk"},

	// The client commands use only the server's protocol.
	"cli": {"github.com/BurntSushi/toml", "github.com/redis/go-redis/v9", "github.com/spf13/cobra", "golang.org/x/sys", "golang.org/x/term"},

	"wrapper": {client, "golang.org/x/sys"},

	// The client is a module of its own, which imports nothing of the server.
	"client":                     {client + "/internal/callbacks", client + "/internal/contend", client + "/internal/names", client + "/internal/suspend", "github.com/redis/go-redis/v9"},
	"client/worker":              {client, client + "/internal/callbacks", client + "/internal/contend"},
	"client/registry":            {client, client + "/internal/contend", client + "/internal/names"},
	"client/internal":            {},
	"client/internal/testserver": {client, "github.com/redis/go-redis/v9"},

	// simbatest is a module of its own, so that the client's users do not get the server's modules.
	"client/simbatest": {module, module + "/commands", module + "/engine", module + "/resp", "github.com/redis/go-redis/v9"},
}

// program is the folder of the main packages. No package may import them.
const program = module + "/cmd"

var imports = &analysis.Analyzer{
	Name: "imports",
	Doc:  "check who imports whom",
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
					pass.Reportf(spec.Pos(), "nobody imports %s: only cmd wires", name)
				case limited && !test && !isStandard(name) && !allows(allowed, name):
					pass.Reportf(spec.Pos(), "%s may not import %s", pass.Pkg.Path(), name)
				}
			}
		}
		return nil, nil
	},
}

// rule returns the imports that a package may have. They are those of the package itself in
// mayImport, or of the closest folder above it. limited is false if mayImport lists none of them.
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

// within reports whether the package name is root, or is below root.
func within(name, root string) bool { return name == root || strings.HasPrefix(name, root+"/") }

// isStandard reports whether a package is in the standard library. The names of all other packages
// begin with a domain.
func isStandard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}
