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

// Errors are all errors of a file of users, so that an operator can fix them together.
type Errors []error

func (f Errors) Error() string {
	texts := make([]string, len(f))
	for i, err := range f {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns the single errors.
func (f Errors) Unwrap() []error { return f }

// parse reads a file of users in the format of Redis' aclfile. A line is "user <name> <rule> …", or
// empty, or a comment that begins with #. parse ignores a byte order mark.
func parse(c *Catalog, path string, text []byte) (map[string]*User, Errors) {
	users := make(map[string]*User)
	lines := make(map[string]int)
	var wrong Errors
	number := 0
	for line := range bytes.Lines(bytes.TrimPrefix(text, []byte("\ufeff"))) {
		number++
		addError := func(format string, args ...any) {
			wrong = append(wrong, fmt.Errorf("%s:%d: %w", path, number, fmt.Errorf(format, args...)))
		}
		words := strings.FieldsFunc(string(line), func(r rune) bool { return r < unicode.MaxASCII && unicode.IsSpace(r) })
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if words[0] != "user" || len(words) < 2 {
			addError("should start with user keyword followed by the username")
			continue
		}
		name := words[1]
		if err := checkName(name); err != nil {
			addError("%v", err)
			continue
		}
		if users[name] != nil {
			addError("duplicate user '%s'", name)
			continue
		}
		u := newUser(c, name)
		users[name], lines[name] = u, number
		for _, rule := range words[2:] {
			if err := u.apply(rule); err != nil {
				addError("Error in applying operation '%s': %v", redact(rule), err)
			}
		}
		u.finish()
	}
	for _, name := range slices.Sorted(maps.Keys(users)) {
		if other := overlapping(users, name); other != "" {
			wrong = append(wrong, fmt.Errorf("%s:%d: the user '%s' could act as '%s': give '%s' rules as:", path, lines[name], other, name, other))
		}
	}
	return users, wrong
}

// overlapping returns the name of another user who may act as the user called name, without a rule
// as:. For example, "a" may act as "a:b". It returns "" if there is no such user.
func overlapping(users map[string]*User, name string) string {
	for i := range len(name) {
		if other := users[name[:i]]; name[i] == ':' && other != nil && i > 0 && other.name != DefaultName && !other.NamesContenders() {
			return other.name
		}
	}
	return ""
}

// maxName is the maximum length of a user's name in bytes. The name is in every line of CLIENT
// LIST.
const maxName = 128

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("the user's name has %d bytes, at most %d are allowed", len(name), maxName)
	}
	if strings.ContainsRune("><#!~%&+-(", rune(name[0])) {
		// The error does not show the rule, which may be a password.
		return errors.New("a rule follows the keyword user, but the name is missing")
	}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return fmt.Errorf("the user's name %q is not printable", name)
		}
	}
	return nil
}

// redact returns a rule without its password. It also hides a password that lacks the > before it.
func redact(rule string) string {
	switch rule[0] {
	case '+', '-', '~', '%', '&', '(':
		return rule
	case '>', '<', '#', '!':
		return rule[:1] + "…"
	}
	return rule[:min(len(rule), 2)] + "…"
}
