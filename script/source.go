package script

import "strings"

// readSource goes through Lua text and returns what the parser does not tell, or not right: for
// each word "local", whether "function" follows it; and the text, with comments such as --[== that
// only look long made short ones. Text that is no Lua it leaves to the parser.
func readSource(text string) (string, []bool) {
	var fixed []byte
	var locals []bool
	afterLocal := false
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"' || c == '\'':
			i = quotedEnd(text, i)
		case c == '[':
			i = max(longEnd(text, i), i+1)
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
			continue
		default:
			i++
			if strings.IndexByte(blanks, c) >= 0 {
				continue
			}
		}
		afterLocal = false
	}
	if fixed != nil {
		text = string(fixed)
	}
	return text, locals
}

// quotedEnd is where the string that begins at i ends.
func quotedEnd(text string, i int) int {
	quote := text[i]
	for i++; i < len(text); i++ {
		switch text[i] {
		case quote:
			return i + 1
		case '\\':
			i++
		}
	}
	return len(text)
}

// longEnd is where the long bracket that begins at i ends, or -1 if none begins there.
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
