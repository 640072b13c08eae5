package resp

import (
	"strconv"
	"strings"
)

// inline reads a command from a line of words.
func (r *reader) inline(line []byte, unauth bool) error {
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	maxArgs, tooMany := r.limits.Args, protocolError("invalid multibulk length")
	maxArg, tooLong := r.limits.Arg, protocolError("invalid bulk length")
	if unauth {
		maxArgs, tooMany = unauthArgs, "unauthenticated multibulk length"
		maxArg, tooLong = unauthArg, "unauthenticated bulk length"
	}
	for i := skipSpace(line, 0); i < len(line); i = skipSpace(line, i) {
		n, rest, ok := unquote(line, i)
		switch {
		case !ok:
			return protocolError("unbalanced quotes in request")
		case len(r.spans) == maxArgs:
			return tooMany
		case n > maxArg:
			return tooLong
		}
		// The line begins at r.start, so these offsets count from r.start too.
		r.spans = append(r.spans, span{i, i + n})
		i = rest
	}
	return nil
}

// unquote reads the word at line[i] by the rules of Redis' sdssplitargs. "…" may contain the
// escapes \n \r \t \b \a \xHH, and '…' may contain \'. A closing quote must end the word. unquote
// overwrites the word with its n unquoted bytes, which never need more room. The word ends before
// line[rest].
func unquote(line []byte, i int) (n, rest int, ok bool) {
	out := i
	var quote byte
	for ; i < len(line); i++ {
		c := line[i]
		switch {
		case quote == 0 && (c == ' ' || c == '\t' || c == '\r'):
			return n, i, true
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
			continue
		case quote != 0 && c == quote:
			if i+1 < len(line) && !isSpace(line[i+1]) {
				return 0, 0, false
			}
			return n, i + 1, true
		case quote == '"' && c == '\\' && i+1 < len(line):
			var length int
			c, length = unescape(line[i:])
			i += length - 1
		case quote == '\'' && c == '\\' && i+1 < len(line) && line[i+1] == '\'':
			i++
			c = '\''
		}
		line[out+n] = c
		n++
	}
	return n, i, quote == 0
}

// unescape returns the byte of the escape at the beginning of text, and the length of the escape.
// The text has the backslash and at least one more byte.
func unescape(text []byte) (c byte, length int) {
	if len(text) >= len(`\xHH`) && text[1] == 'x' {
		if hex, err := strconv.ParseUint(string(text[2:4]), 16, 8); err == nil {
			return byte(hex), len(`\xHH`)
		}
	}
	if i := strings.IndexByte("nrtba", text[1]); i >= 0 {
		return "\n\r\t\b\a"[i], 2
	}
	return text[1], 2
}

func skipSpace(line []byte, i int) int {
	for i < len(line) && isSpace(line[i]) {
		i++
	}
	return i
}

// isSpace is C's isspace.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
