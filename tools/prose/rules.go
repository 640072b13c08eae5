package main

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	mostWords   = 25
	mostColumns = 100
)

func checkText(t *text) (found []finding) {
	for _, s := range t.sentences() {
		at := s[0].line
		if n := s.count(); n > mostWords {
			found = append(found, finding{at, "sentence", fmt.Sprintf("%d words: %s", n, s)})
		}
		if hasClauseAsSubject(s) {
			found = append(found, finding{at, "clause", s.String()})
		}
		found = append(found, checkWords(s)...)
	}
	return found
}

// checkPhrase checks a heading or a table cell. It may be a clause, and its sentences together must
// be short.
func checkPhrase(what string, t *text) (found []finding) {
	if n := sentence(t.words).count(); n > mostWords {
		found = append(found, finding{t.words[0].line, what, fmt.Sprintf("%d words: %s", n, sentence(t.words))})
	}
	for _, s := range t.sentences() {
		found = append(found, checkWords(s)...)
	}
	return found
}

var url = regexp.MustCompile(`https?://[^\s)>]+`)

// checkLine checks the length of a line. A tab counts as four columns, and a URL as none.
func checkLine(line string, at int) []finding {
	shown := strings.ReplaceAll(url.ReplaceAllString(line, ""), "\t", "    ")
	n := utf8.RuneCountInString(shown)
	if n <= mostColumns {
		return nil
	}
	return []finding{{at, "line", fmt.Sprintf("%d columns", n)}}
}

var passive = regexp.MustCompile(`\b(is|are|was|were|be|been|being)( not| never| also| only| then| already)? (told|said|asked)\b`)

func checkWords(s sentence) (found []finding) {
	for _, w := range s {
		if w.code {
			continue
		}
		if isIdentifier(w.text) {
			found = append(found, checkIdentifier(w.text, w.line)...)
			continue
		}
		for _, part := range strings.FieldsFunc(w.plain(), func(r rune) bool { return !isWordRune(r) }) {
			if banned[part] {
				found = append(found, finding{w.line, "word", fmt.Sprintf("%q: %s", part, s)})
			}
		}
	}
	plain := strings.Join(s.plain(), " ")
	if m := passive.FindString(plain); m != "" {
		found = append(found, finding{s[0].line, "passive", fmt.Sprintf("%q: %s", m, s)})
	}
	if m := bannedPhrases.FindString(plain); m != "" {
		found = append(found, finding{s[0].line, "phrase", fmt.Sprintf("%q: %s", m, s)})
	}
	return found
}

var camelCase = regexp.MustCompile(`^\W*[\w.]*(_|[a-z][A-Z]|\w\.[A-Za-z])[\w.]*(\(\))?\W*$`)

func isIdentifier(s string) bool { return camelCase.MatchString(s) }
