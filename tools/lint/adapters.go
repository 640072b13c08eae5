package main

import (
	"cmp"
	"go/token"
	"regexp"

	"github.com/golangci/misspell"
	"github.com/golangci/unconvert"
	"github.com/kisielk/errcheck/errcheck"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/packages"
	"honnef.co/go/tools/unused"
)

// These analyzers wrap linters that have no analyzer, or whose analyzer cannot exclude functions.

// ends matches functions whose errors may be ignored, such as those that close a file or print.
var ends = regexp.MustCompile(`^((os\.)?[Ss]td(out|err)\..*|.*[Cc]lose|.*Flush|os\.Remove(All)?|.*[Pp]rint(f|ln)?|os\.(Un)?Setenv)$`)

var errcheckAnalyzer = &analysis.Analyzer{
	Name: "errcheck",
	Doc:  "check for unchecked errors",
	Run: func(pass *analysis.Pass) (any, error) {
		checker := errcheck.Checker{Exclusions: errcheck.Exclusions{
			BlankAssignments: true,
			TypeAssertions:   true,
			Symbols:          errcheck.DefaultExcludedSymbols,
		}}
		found := checker.CheckPackage(&packages.Package{
			Fset: pass.Fset, Syntax: pass.Files, Types: pass.Pkg, TypesInfo: pass.TypesInfo,
		})
		for _, e := range found.Unique().UncheckedErrors {
			if name := cmp.Or(e.SelectorName, e.FuncName); !ends.MatchString(name) {
				pass.Reportf(pos(pass, e.Pos), "the error of %s is not checked", name)
			}
		}
		return nil, nil
	},
}

var misspellAnalyzer = &analysis.Analyzer{
	Name: "misspell",
	Doc:  "check for words that are often misspelled",
	Run: func(pass *analysis.Pass) (any, error) {
		words := misspell.New()
		for _, f := range pass.Files {
			name := fileName(pass, f)
			text, err := pass.ReadFile(name)
			if err != nil {
				return nil, err
			}
			_, found := words.Replace(string(text))
			for _, d := range found {
				at := token.Position{Filename: name, Line: d.Line, Column: d.Column + 1}
				pass.Reportf(pos(pass, at), "%s is a misspelling of %s", d.Original, d.Corrected)
			}
		}
		return nil, nil
	},
}

var unconvertAnalyzer = &analysis.Analyzer{
	Name: "unconvert",
	Doc:  "check for conversions to the type that a value has",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, p := range unconvert.Run(pass) {
			pass.Reportf(pos(pass, p), "unnecessary conversion")
		}
		return nil, nil
	},
}

var unusedAnalyzer = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "check for code that nobody uses",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, o := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			if o.Kind != "type param" {
				pass.Reportf(pos(pass, o.Position), "%s %s is unused", o.Kind, o.Name)
			}
		}
		return nil, nil
	},
}

// pos converts a position that a linter reports to a position of the pass.
func pos(pass *analysis.Pass, p token.Position) token.Pos {
	for _, f := range pass.Files {
		if file := pass.Fset.File(f.FileStart); file.Name() == p.Filename {
			return file.LineStart(p.Line) + token.Pos(max(p.Column-1, 0))
		}
	}
	return token.NoPos
}
