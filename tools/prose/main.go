// Command prose checks the language of Markdown files, of comments in Go files, and of the names
// that Go files declare. Its rules limit the length of sentences and of lines. They forbid clauses
// as subjects, passives of "tell", "say" and "ask", and words that this project replaced by the
// field's terms.
//
//	prose [file or folder ...]
//
// Without arguments it checks the current folder. It prints each finding as one line:
//
//	file:line: rule: text
//
// With findings the exit code is 1. If a file cannot be read or parsed, the exit code is 2.
package main

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	roots := os.Args[1:]
	if len(roots) == 0 {
		roots = []string{"."}
	}
	findings, err := run(os.Stdout, roots)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "prose:", err)
		os.Exit(2)
	case findings > 0:
		fmt.Fprintln(os.Stderr, "prose:", findings, "findings")
		os.Exit(1)
	}
}

// run checks all files below the roots, prints the findings to w, and returns their number.
func run(w io.Writer, roots []string) (findings int, err error) {
	for _, root := range roots {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && path != root && skipped(entry.Name()):
				return filepath.SkipDir
			case entry.IsDir():
				return nil
			}
			found, err := checkFile(path)
			for _, f := range found {
				fmt.Fprintf(w, "%s:%d: %s: %s\n", path, f.line, f.rule, f.text)
			}
			findings += len(found)
			return err
		})
		if err != nil {
			return findings, err
		}
	}
	return findings, nil
}

// skipped reports whether the program ignores a folder, because others wrote its files.
func skipped(folder string) bool {
	return strings.HasPrefix(folder, ".") || folder == "testdata" || folder == "node_modules"
}

type finding struct {
	line       int
	rule, text string
}

// checkFile returns the findings of a Go or Markdown file in the order of its lines. Other files
// have none.
func checkFile(path string) ([]finding, error) {
	var check func(path string, source []byte) ([]finding, error)
	switch filepath.Ext(path) {
	case ".go":
		check = checkGo
	case ".md":
		check = checkMarkdown
	default:
		return nil, nil
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	found, err := check(path, bytes.ReplaceAll(source, []byte("\r\n"), []byte("\n")))
	slices.SortStableFunc(found, func(a, b finding) int { return a.line - b.line })
	return found, err
}
