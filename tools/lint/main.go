// Command lint checks the code for bugs, for dead code and for forbidden imports. It has no opinion
// on style. `make lint` runs it through `go vet -vettool`, which caches its findings.
package main

import (
	"go/ast"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
)

func main() {
	all := append(govet,
		imports,
		errcheckAnalyzer,
		errorlint.NewAnalyzer(),
		ineffassign.Analyzer,
		misspellAnalyzer,
		unconvertAnalyzer,
		unusedAnalyzer,
	)
	for _, a := range staticcheck.Analyzers {
		all = append(all, a.Analyzer)
	}
	for _, a := range simple.Analyzers {
		all = append(all, a.Analyzer)
	}
	for i, a := range all {
		all[i] = signed(a)
	}
	unitchecker.Main(all...)
}

// notInTests has the analyzers that do not check test files. A test may ignore errors, and may
// compare errors with ==.
var notInTests = map[string]bool{"errcheck": true, "errorlint": true}

// signed returns the analyzer, and appends its name to each finding.
func signed(a *analysis.Analyzer) *analysis.Analyzer {
	s := *a
	s.Run = func(pass *analysis.Pass) (any, error) {
		p := *pass
		p.Report = func(d analysis.Diagnostic) {
			if notInTests[a.Name] && isTest(pass.Fset.Position(d.Pos).Filename) {
				return
			}
			d.Message += " (" + a.Name + ")"
			pass.Report(d)
		}
		return a.Run(&p)
	}
	return &s
}

func isTest(file string) bool { return strings.HasSuffix(file, "_test.go") }

// fileName returns the name of the file on disk. It ignores //line directives, which may name
// another file.
func fileName(pass *analysis.Pass, f *ast.File) string {
	return pass.Fset.PositionFor(f.FileStart, false).Filename
}
