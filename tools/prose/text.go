package main

import (
	"strings"
	"unicode"
)

// word is the text between two spaces, with its punctuation. A code span, with the text that
// adjoins it, is one word.
type word struct {
	text string
	line int
	code bool // whether it has a code span; rules about words do not apply then
}

// text is a block of prose: a paragraph, a list item, a heading or a table cell.
type text struct {
	words []word
	open  bool // true if no space has followed the last word, so the word may continue
}

// add appends prose. If the text is open and s has no space in front, s continues the last word.
func (t *text) add(s string, line int) {
	for i, part := range strings.FieldsFunc(s, unicode.IsSpace) {
		t.join(part, line, false, i > 0 || startsWithSpace(s))
	}
	if s != "" {
		t.open = !unicode.IsSpace(rune(s[len(s)-1]))
	}
}

func (t *text) addCode(s string, line int) {
	t.join("`"+s+"`", line, true, false)
	t.open = true
}

func (t *text) space() { t.open = false }

func (t *text) join(s string, line int, code, begins bool) {
	if begins || !t.open || len(t.words) == 0 {
		t.words = append(t.words, word{s, line, code})
		return
	}
	last := &t.words[len(t.words)-1]
	last.text += s
	last.code = last.code || code
}

func startsWithSpace(s string) bool { return s != "" && unicode.IsSpace(rune(s[0])) }

// sentences splits the text after each word that ends a sentence.
func (t *text) sentences() (all []sentence) {
	from := 0
	for i, w := range t.words {
		if w.ends() || i == len(t.words)-1 {
			all = append(all, t.words[from:i+1])
			from = i + 1
		}
	}
	return all
}

var abbreviations = map[string]bool{"e.g.": true, "i.e.": true, "vs.": true, "cf.": true}

// ends reports whether a sentence ends with the word. An ellipsis does not end one: in this project
// it mostly stands for omitted arguments.
func (w word) ends() bool {
	s := strings.TrimRight(w.text, `)]"'”’*_`)
	return strings.HasSuffix(s, "?") || strings.HasSuffix(s, "!") && len(s) > 1 ||
		strings.HasSuffix(s, ".") && !strings.HasSuffix(s, "..") &&
			!abbreviations[strings.ToLower(strings.TrimLeft(s, `(["'“‘`))]
}

// plain returns the word in lower case, without the punctuation around it. For code it returns "`".
func (w word) plain() string {
	if w.code {
		return "`"
	}
	return strings.ToLower(strings.TrimFunc(w.text, func(r rune) bool { return !isWordRune(r) }))
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// sentence has at least one word.
type sentence []word

// count returns the number of words. A word without letters and digits, such as a dash, does not
// count.
func (s sentence) count() (n int) {
	for _, w := range s {
		if w.code || strings.ContainsFunc(w.text, isWordRune) {
			n++
		}
	}
	return n
}

// plain returns the plain form of each word, without words that are only punctuation.
func (s sentence) plain() (words []string) {
	for _, w := range s {
		if p := w.plain(); p != "" {
			words = append(words, p)
		}
	}
	return words
}

// String returns the first words of the sentence, enough to find it.
func (s sentence) String() string {
	const enough = 14
	var b strings.Builder
	for i, w := range s[:min(len(s), enough)] {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w.text)
	}
	if len(s) > enough {
		b.WriteString(" …")
	}
	return b.String()
}

func (s sentence) isQuestion() bool {
	return strings.Contains(s[len(s)-1].text, "?")
}
