package cli

import (
	"strconv"
	"strings"
)

// Printable returns s as a terminal can show it, in one line. Characters that are not printable,
// invalid UTF-8 and backslashes are written as in a Go string. Spaces other than ' ' and characters
// that change the direction of the text are not printable.
func Printable(s string) string {
	quoted := strconv.Quote(s)
	return unquoter.Replace(quoted[1 : len(quoted)-1])
}

// unquoter removes what a Go string needs only within quotes. A real U+FFFD is escaped, because it looks
// like an invalid byte.
var unquoter = strings.NewReplacer(`\"`, `"`, "\ufffd", `\ufffd`)
