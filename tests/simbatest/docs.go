package simbatest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// DocsBlock returns the lines of the code block between the markers <!-- name --> and <!-- /name
// --> of a page in docs/.
func DocsBlock(t testing.TB, page, name string) []string {
	t.Helper()
	root, err := clone()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "<!-- "+name+" -->\n")
	block, _, ended := strings.Cut(rest, "\n<!-- /"+name+" -->")
	lines := strings.Split(block, "\n")
	if !ok || !ended || len(lines) < 3 {
		t.Fatalf("docs/%s has no code block between the markers of %s", page, name)
	}
	return lines[1 : len(lines)-1] // without the fences
}
