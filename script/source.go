package script

import (
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// scan reads the words of a script before the parser. For each word "local" it returns whether
// "function" follows, which the parser does not tell. It refuses deeply nested text, for which the
// parser would need much memory. It may count more levels than the parser, and never fewer.
func scan(text string) (locals []bool, err error) {
	scanner := parse.NewScanner(strings.NewReader(text), chunkName)
	lexer := &parse.Lexer{}
	open := []int{0} // pending right-associative operators, for each open bracket or block
	for {
		tok, err := scanner.Scan(lexer)
		if err != nil || tok.Type < 0 {
			return locals, nil // the parser reports the error
		}
		if tok.Type == parse.TFunction && lexer.PrevTokenType == parse.TLocal {
			locals[len(locals)-1] = true
		}
		lexer.PrevTokenType = tok.Type
		top := len(open) - 1
		switch tok.Type {
		case '(', '{', '[', parse.TDo, parse.TThen, parse.TElse, parse.TElseIf, parse.TFunction, parse.TRepeat:
			open = append(open, 0)
		case ')', '}', ']', parse.TEnd, parse.TUntil:
			if top > 0 {
				open = open[:top]
			}
		case parse.T2Comma, '^', '-', '#', parse.TNot:
			open[top]++
		case parse.TLocal:
			locals = append(locals, false)
			open[top] = 0
		case '=', ',', ';', parse.TReturn, parse.TIf, parse.TFor, parse.TWhile:
			open[top] = 0
		}
		if len(open) > maxSyntaxLevels || open[len(open)-1] > maxSyntaxLevels {
			return nil, sourceError(tok.Pos.Line, "chunk has too many syntax levels")
		}
	}
}
