package cli

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns s as a terminal can show it, in one line. Characters that are not printable,
// invalid UTF-8 and backslashes are written as in a Go string. Spaces other than ' ' and characters
// that change the direction of the text are not printable.
func Printable(s string) string {
	if strings.IndexFunc(s, unprintable) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if unprintable(r) {
			quoted := strconv.QuoteToASCII(s[:n])
			b.WriteString(quoted[1 : len(quoted)-1])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// unprintable reports whether a character is escaped. A real U+FFFD is escaped too, because it
// looks like an invalid byte.
func unprintable(r rune) bool {
	return r == '\\' || r == utf8.RuneError || !unicode.IsPrint(r)
}
