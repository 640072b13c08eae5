package script

import (
	"fmt"
	"strconv"
	"strings"
)

// readSource scans Lua text before the parser, which differs from Lua. The parser takes a comment
// such as --[== for a long one, so the returned text has a short comment instead. For each word
// "local", it returns whether "function" follows. It refuses separators and escapes that only the
// parser accepts. The parser finds all other errors.
func readSource(text string) (string, []bool, error) {
	var fixed []byte
	var locals []bool
	afterLocal, parameters := false, false
	last := byte(';') // the last byte of code; ';' where no separator may follow
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"' || c == '\'':
			end, large := quotedEnd(text, i)
			if large {
				return "", nil, errorAt(text, i, "escape sequence too large near '"+text[i:end]+"'")
			}
			i, last = end, c
		case c == '[':
			i, last = max(longEnd(text, i), i+1), c
		case strings.HasPrefix(text[i:], "--"):
			end := longEnd(text, i+2)
			if end < 0 {
				if fixed == nil && strings.HasPrefix(text[i+2:], "[=") {
					fixed = []byte(text)
				}
				if fixed != nil && strings.HasPrefix(text[i+2:], "[") {
					fixed[i+2] = ' '
				}
				end = i + len(text[i:])
				if n := strings.IndexAny(text[i:], "\r\n"); n >= 0 {
					end = i + n
				}
			}
			i = end
			continue // a comment between two words changes nothing
		case isLetter(c) || c == '_' || isDigit(c):
			start := i
			for i < len(text) && (isLetter(text[i]) || text[i] == '_' || isDigit(text[i])) {
				i++
			}
			word := text[start:i]
			if afterLocal {
				locals[len(locals)-1] = word == "function"
			}
			afterLocal = word == "local"
			if afterLocal {
				locals = append(locals, false)
			}
			last = c
			switch word {
			case "do", "then", "else", "repeat":
				last = ';'
			case "function":
				parameters = true
			}
			continue
		default:
			if strings.IndexByte(blanks, c) >= 0 {
				i++
				continue
			}
			if (c == ';' || c == ',') && (last == ';' || last == ',' || last == '{') {
				return "", nil, errorAt(text, i, fmt.Sprintf("unexpected symbol near '%c'", c))
			}
			last = c
			if c == ')' && parameters {
				parameters, last = false, ';'
			}
			i++
		}
		afterLocal = false
	}
	if fixed != nil {
		text = string(fixed)
	}
	return text, locals, nil
}

func errorAt(text string, i int, what string) error {
	return sourceError(1+strings.Count(text[:i], "\n"), "%s", what)
}

// quotedEnd returns the end of the string that begins at i. large means that an escape exceeds 255.
func quotedEnd(text string, i int) (end int, large bool) {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch text[i] {
		case quote:
			return i + 1, large
		case '\\':
			i++
			if i+3 <= len(text) {
				n, err := strconv.ParseUint(text[i:i+3], 10, 16)
				large = large || err == nil && n > 255
			}
		}
	}
	return len(text), large
}

// longEnd returns the end of the long bracket that begins at i, or -1 if none begins there.
func longEnd(text string, i int) int {
	if i >= len(text) || text[i] != '[' {
		return -1
	}
	level := 0
	for i+1+level < len(text) && text[i+1+level] == '=' {
		level++
	}
	if i+1+level >= len(text) || text[i+1+level] != '[' {
		return -1
	}
	closing := "]" + strings.Repeat("=", level) + "]"
	if n := strings.Index(text[i+2+level:], closing); n >= 0 {
		return i + 2 + level + n + len(closing)
	}
	return len(text)
}
