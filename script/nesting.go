package script

import (
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// smallSource is a length in bytes. Shorter text is cheap to parse in any case.
const smallSource = 16 << 10

// checkNesting refuses deeply nested text, for which the parser would need much memory. It may
// count more levels than the parser, and never fewer.
func checkNesting(text string) error {
	if len(text) <= smallSource {
		return nil
	}
	scanner := parse.NewScanner(strings.NewReader(text), chunkName)
	lexer := &parse.Lexer{}
	open := []int{0} // pending right-associative operators, for each open bracket or block
	for {
		tok, err := scanner.Scan(lexer)
		if err != nil || tok.Type < 0 {
			return nil // the parser reports the error
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
		case '=', ',', ';', parse.TLocal, parse.TReturn, parse.TIf, parse.TFor, parse.TWhile:
			open[top] = 0
		}
		if len(open) > maxSyntaxLevels || open[len(open)-1] > maxSyntaxLevels {
			return sourceError(tok.Pos.Line, "chunk has too many syntax levels")
		}
	}
}
