// Package docs tests the pages of this folder, the README and the other pages beside it.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const root = ".."

// pages returns all pages of Markdown in the source tree, from its root.
func pages(t *testing.T) []string {
	t.Helper()
	return sources(t, ".md")
}

// sources returns the files of the source tree with one of the extensions, or of that name.
func sources(t *testing.T, suffixes ...string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || slices.Contains([]string{"bin", "dist", "node_modules", "simba-data"}, name)) {
			return filepath.SkipDir
		}
		if !d.IsDir() && slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			rel, err := filepath.Rel(root, path)
			if err != nil {
				return err
			}
			all = append(all, rel)
		}
		return nil
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files, %v", len(all), err)
	}
	return all
}

func read(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	fence   = regexp.MustCompile("(?ms)^\\s*```.*?^\\s*```$")
	code    = regexp.MustCompile("`[^`\n]*`")
)

// anchors returns what a link into the page may name, as GitHub makes it from headings.
func anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all[slug(match[1])] = true
	}
	for _, match := range anchor.FindAllStringSubmatch(text, -1) {
		all[match[1]] = true
	}
	return all
}

func slug(title string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, title)
}

func TestEveryLinkLeadsToAFileAndAHeading(t *testing.T) {
	headings := make(map[string]map[string]bool) // of each page that was linked to
	for _, page := range pages(t) {
		text := code.ReplaceAllString(fence.ReplaceAllString(read(t, page), ""), "")
		for _, match := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(match[1], "://") {
				continue
			}
			file, name, named := strings.Cut(match[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: there is no such file", page, match[1])
				continue
			}
			if named && headings[target] == nil {
				headings[target] = anchors(read(t, target))
			}
			if named && !headings[target][name] {
				t.Errorf("%s links to %s: there is no such heading", page, match[1])
			}
		}
	}
}

var published = regexp.MustCompile(`https://github\.com/simba-resp/simba-resp/blob/main/(docs/[^\s"#]+)(?:#([^\s"]+))?`)

// Rules, dashboard and settings link to pages on the web.
func TestLinksOfTheDeployedFilesLeadToAFileAndAHeading(t *testing.T) {
	found := 0
	for _, file := range sources(t, ".yml", ".json", ".toml") {
		for _, match := range published.FindAllStringSubmatch(read(t, file), -1) {
			found++
			switch _, err := os.Stat(filepath.Join(root, match[1])); {
			case err != nil:
				t.Errorf("%s links to %s: there is no such file", file, match[1])
			case match[2] != "" && !anchors(read(t, match[1]))[match[2]]:
				t.Errorf("%s links to %s#%s: there is no such heading", file, match[1], match[2])
			}
		}
	}
	if found == 0 {
		t.Error("no file has a link")
	}
}

func TestTheIndexListsEveryPage(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, page := range pages(t) {
		below, ok := strings.CutPrefix(page, "docs/")
		if ok && below != "README.md" && !strings.Contains(index, "("+below+")") {
			t.Errorf("docs/README.md does not link to %s", below)
		}
	}
}

var mention = regexp.MustCompile(`\bdocs/[A-Za-z/_-]+\.(?:md|svg)\b`)

func TestSourcesNameExistingPages(t *testing.T) {
	for _, file := range sources(t, ".go", ".yaml", ".sh", "Makefile") {
		for _, page := range mention.FindAllString(read(t, file), -1) {
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				t.Errorf("%s names %s, which does not exist", file, page)
			}
		}
	}
}

func TestLinesHaveAtMost100Columns(t *testing.T) {
	const columns = 100
	for _, page := range pages(t) {
		for i, line := range strings.Split(fence.ReplaceAllStringFunc(read(t, page), keepLines), "\n") {
			exempt := strings.HasPrefix(line, "|") || strings.HasPrefix(line, "    ") // table, code
			if !exempt && utf8.RuneCountInString(line) > columns {
				t.Errorf("%s:%d has more than %d columns", page, i+1, columns)
			}
		}
	}
}

// keepLines removes a text but for its ends of lines.
func keepLines(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }
