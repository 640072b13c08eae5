package access

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// FileError is something wrong in a file of users.
type FileError struct {
	Path string
	Line int // from 1
	Text string
}

func (f *FileError) Error() string { return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.Text) }

// Errors are all that is wrong with the users, to be mended in one go. Each says
// where it is.
type Errors []error

func (f Errors) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the faults.
func (f Errors) Unwrap() []error { return f }

// parse reads a file of users, in the form of Redis' aclfile: lines "user <name>
// <rule> …", empty ones, and comments that begin with #. A byte order mark is no part of them.
func parse(c *Catalog, path string, text []byte) (map[string]*User, Errors) {
	users := make(map[string]*User)
	lines := make(map[string]int)
	var wrong Errors
	number := 0
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		number++
		fault := func(format string, args ...any) {
			wrong = append(wrong, &FileError{path, number, fmt.Sprintf(format, args...)})
		}
		words := strings.FieldsFunc(string(line), func(r rune) bool { return r < unicode.MaxASCII && unicode.IsSpace(r) })
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if words[0] != "user" || len(words) < 2 {
			fault("should start with user keyword followed by the username")
			continue
		}
		name := words[1]
		if err := checkName(name); err != nil {
			fault("%v", err)
			continue
		}
		if users[name] != nil {
			fault("duplicate user '%s'", name)
			continue
		}
		u := newUser(c, name)
		users[name], lines[name] = u, number
		for _, rule := range words[2:] {
			if err := u.apply(rule); err != nil {
				fault("Error in applying operation '%s': %v", veil(rule), err)
			}
		}
		u.finish()
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		if other := sharer(users, name); other != "" {
			wrong = append(wrong, &FileError{path, lines[name], fmt.Sprintf("the user '%s' would act in the names of '%s': give it rules as:", other, name)})
		}
	}
	return users, wrong
}

// sharer is a user that may act in the names of another one, without a rule that says so: "a" of
// "a:b". "" = there is none.
func sharer(users map[string]*User, name string) string {
	for i := range len(name) {
		if other := users[name[:i]]; name[i] == ':' && other != nil && i > 0 && other.name != DefaultName && !other.NamesContenders() {
			return other.name
		}
	}
	return ""
}

// maxName bounds a user's name: it is in every line of CLIENT LIST.
const maxName = 128

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("the user's name has %d bytes, at most %d are allowed", len(name), maxName)
	}
	if strings.ContainsRune("><#!~%&+-(", rune(name[0])) {
		// A rule: the name was forgotten. It is not shown, since it may be a password.
		return errors.New("there is no name behind the keyword user, but a rule")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the user's name %q is not printable", name)
		}
	}
	return nil
}

// veil is a rule as a fault may show it: no password, and none whose > was forgotten.
func veil(rule string) string {
	switch rule[0] {
	case '+', '-', '~', '%', '&', '(':
		return rule
	case '>', '<', '#', '!':
		return rule[:1] + "…"
	}
	return rule[:min(len(rule), 2)] + "…"
}
