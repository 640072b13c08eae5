package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"testing"

	"golang.org/x/tools/go/analysis"
)

func TestImportsRunOnlyDownwards(t *testing.T) {
	for _, test := range []struct {
		pkg, file, imports string
		allowed            bool
	}{
		{"", "simba.go", "net/http", true},
		{"", "simba.go", module + "/history", false},
		{"", "simba.go", "golang.org/x/sys/unix", false},
		{"/engine", "tx.go", module, true},
		{"/engine", "tx.go", module + "/persist", false},
		{"/engine", "tx_test.go", module + "/persist", true},
		{"/persist", "store.go", "github.com/cockroachdb/pebble/v2/vfs", true},
		{"/persist", "store.go", "github.com/cockroachdb/pebble", false},
		{"/commands", "table.go", module + "/resp", true},
		{"/resp", "conn.go", module + "/commands", false},
		{"/backends/redis", "wait.go", module + "/backends/mysql", false},
		{"/backends/redis/below", "wait.go", module + "/engine", false},
		{"/client", "lock.go", "github.com/redis/go-redis/v9", true},
		{"/client", "lock.go", module, false},
		{"/client", "lock.go", "golang.org/x/sys/unix", false},
		{"/client", "lock.go", client + "/worker", false},
		{"/client/worker", "worker.go", client, true},
		{"/client/worker", "worker.go", client + "/registry", false},
		{"/client/internal/contend", "contend.go", client, false},
		{"/tests/abuse", "abuse.go", "github.com/redis/go-redis/v9", true},
		{"/tests/abuse", "abuse_test.go", program + "/simba-resp", false},
	} {
		if found := imported(t, module+test.pkg, test.file, test.imports); (found == 0) != test.allowed {
			t.Errorf("package %s (%s) imports %s: the analyzer reports %d findings", test.pkg, test.file, test.imports, found)
		}
	}
}

// imported returns how many findings the analyzer has in a file of package pkg that imports name.
func imported(t *testing.T, pkg, file, name string) (findings int) {
	t.Helper()
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, "package p\n\nimport _ \""+name+"\"\n", parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	_, err = imports.Run(&analysis.Pass{
		Fset:   fset,
		Files:  []*ast.File{f},
		Pkg:    types.NewPackage(pkg, "p"),
		Report: func(analysis.Diagnostic) { findings++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	return findings
}
