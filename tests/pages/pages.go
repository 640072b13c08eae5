// Package pages keeps generated pages of the docs current.
package pages

import (
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the generated pages")

// Current fails the test unless a page has the text want between two markers. If begin is "", the
// text begins the page; if end is "", it ends the page. With the flag -update, Current writes want
// into the page instead.
func Current(t testing.TB, page, begin, end, want string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), begin)
	shown, after, ended := rest, "", true
	if end != "" {
		shown, after, ended = strings.Cut(rest, end)
	}
	switch {
	case !begun || !ended:
		t.Fatalf("%s has no text between %q and %q", page, begin, end)
	case shown == want:
	case *update:
		if err := os.WriteFile(page, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not current; run: make docs", page)
	}
}

// Fold breaks a text into lines of at most 100 columns. All lines but the first begin with indent.
func Fold(text, indent string) string {
	const columns = 100
	var b strings.Builder
	length := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case length+1+n > columns:
			b.WriteString("\n" + indent)
			length = len(indent)
		default:
			b.WriteByte(' ')
			length++
		}
		b.WriteString(word)
		length += n
	}
	return b.String() + "\n"
}
