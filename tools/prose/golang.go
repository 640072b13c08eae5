package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// checkGo checks the comments of a Go file, the identifiers that it declares, and its name.
func checkGo(path string, source []byte) ([]finding, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	if ast.IsGenerated(file) {
		return nil, nil
	}
	found := checkIdentifier(strings.TrimSuffix(filepath.Base(path), ".go"), 1)
	lines := strings.Split(string(source), "\n")
	for _, group := range file.Comments {
		c := readComment(fset, group)
		for _, n := range c.lines {
			found = append(found, checkLine(lines[n-1], n)...)
		}
		for i := range c.texts {
			found = append(found, checkText(&c.texts[i])...)
		}
	}
	declared(file, func(name *ast.Ident) {
		found = append(found, checkIdentifier(name.Name, fset.Position(name.Pos()).Line)...)
	})
	return found, nil
}

// comment is the prose of a comment group. It has no directives, no code, and no output of
// examples.
type comment struct {
	lines []int // numbers of the lines to check for length
	texts []text
}

var (
	directive = regexp.MustCompile(`^//([a-z0-9]+:[a-z0-9]|line |export |extern |[ \t]*\+build )`)
	listItem  = regexp.MustCompile(`^[ \t]*([-*+•]|\d+[.)])[ \t]+`)
	output    = regexp.MustCompile(`(?i)^//[ \t]*(unordered )?output:`)
)

func readComment(fset *token.FileSet, group *ast.CommentGroup) (c comment) {
	c.texts = []text{{}}
	inCode := false // whether the next text is inside a code span
	for _, part := range group.List {
		if output.MatchString(part.Text) {
			break
		}
		if directive.MatchString(part.Text) {
			continue
		}
		first := fset.Position(part.Pos()).Line
		for i, line := range strings.Split(strip(part.Text), "\n") {
			c.lines = append(c.lines, first+i)
			c.read(strings.TrimPrefix(line, " "), first+i, &inCode)
		}
	}
	return c
}

func strip(s string) string {
	if s, ok := strings.CutPrefix(s, "//"); ok {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(s, "/*"), "*/")
}

// read adds a line to the last text, or to a new text if the line begins a list item.
func (c *comment) read(line string, at int, inCode *bool) {
	item := listItem.FindString(line)
	switch {
	case strings.TrimSpace(line) == "":
		c.texts = append(c.texts, text{})
		*inCode = false
		return
	case item != "":
		c.texts = append(c.texts, text{})
		*inCode = false
		line = line[len(item):]
	case strings.HasPrefix(line, "\t") || strings.HasPrefix(line, "  ") && len(c.texts[len(c.texts)-1].words) == 0:
		return // code
	}
	t := &c.texts[len(c.texts)-1]
	t.space()
	for i, part := range strings.Split(line, "`") {
		if i > 0 {
			*inCode = !*inCode
		}
		if *inCode {
			t.addCode(part, at)
		} else {
			t.add(part, at)
		}
	}
}

// declared calls f with each name that the file declares.
func declared(file *ast.File, f func(*ast.Ident)) {
	all := func(names []*ast.Ident) {
		for _, name := range names {
			f(name)
		}
	}
	expressions := func(list ...ast.Expr) {
		for _, e := range list {
			if name, ok := e.(*ast.Ident); ok {
				f(name)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			f(n.Name)
		case *ast.TypeSpec:
			f(n.Name)
		case *ast.ValueSpec:
			all(n.Names)
		case *ast.Field:
			all(n.Names)
		case *ast.LabeledStmt:
			f(n.Label)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				expressions(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				expressions(n.Key, n.Value)
			}
		}
		return true
	})
}

var clauseTest = regexp.MustCompile(`^(Test|Fuzz|Benchmark|Example)(Who|What|Whoever|Whatever)[A-Z]`)

// checkIdentifier checks each word of the name of a Go identifier or a file.
func checkIdentifier(name string, line int) (found []finding) {
	words := append(append([]string{""}, split(name)...), "")
	for i, w := range words {
		if bannedInIdentifiers[w] && !ordinary[w+words[i+1]] && !ordinary[words[i-1]+w] {
			found = append(found, finding{line, "identifier", fmt.Sprintf("%q in %s", w, name)})
		}
	}
	if clauseTest.MatchString(name) {
		found = append(found, finding{line, "clause", name})
	}
	return found
}

// split returns the words of an identifier in lower case. For readHTTPBody_2 they are read, http
// and body.
func split(name string) (words []string) {
	runes := []rune(name)
	from := 0
	end := func(i int) {
		if i > from {
			words = append(words, strings.ToLower(string(runes[from:i])))
		}
	}
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end(i)
			from = i + 1
		case i > from && unicode.IsUpper(r) &&
			(unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end(i)
			from = i
		}
	}
	end(len(runes))
	return words
}
