package script

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// stringFormat is string.format, by the rules of C's printf, without the flag # and the conversions
// c, E, G, o and q.
func (s *state) stringFormat(L *lua.LState) int {
	format := checkString(L, 1)
	var b []byte
	arg := 1
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b = append(b, format[i])
			continue
		}
		i++
		if i < len(format) && format[i] == '%' {
			b = append(b, '%')
			continue
		}
		d := parseDirective(L, format[i:])
		i += d.length
		verb := byte(0)
		if i < len(format) {
			verb = format[i]
		}
		arg++
		if arg > L.GetTop() {
			badArgument(L, arg, "no value")
		}
		b = d.append(L, b, verb, arg)
		if len(b) > maxString {
			raiseError(L, "string length overflow")
		}
	}
	s.checkLength(L, len(b))
	return push(L, lua.LString(b))
}

// directive is the part of a conversion between % and the letter.
type directive struct {
	flags     string
	width     string
	precision string // with its point
	length    int
}

// directiveText matches the text of a directive.
var directiveText = regexp.MustCompile(`^([-+ 0]*)([0-9]{0,2})(\.[0-9]{0,2})?`)

func parseDirective(L *lua.LState, text string) directive {
	m := directiveText.FindStringSubmatch(text)
	d := directive{flags: m[1], width: m[2], precision: m[3], length: len(m[0])}
	if len(d.flags) >= 6 {
		raiseError(L, "invalid format (repeated flags)")
	}
	if d.length < len(text) && isDigit(text[d.length]) {
		raiseError(L, "invalid format (width or precision too long)")
	}
	return d
}

func (d directive) append(L *lua.LState, b []byte, verb byte, arg int) []byte {
	switch verb {
	case 'd', 'i':
		n := toInteger(checkNumber(L, arg))
		if n == 0 && d.omitsZero() {
			return d.pad(b, d.sign()) // fmt writes no sign
		}
		return fmt.Appendf(b, d.verb('d'), n)
	case 'u':
		return fmt.Appendf(b, d.unsigned().verb('d'), toUnsigned(checkNumber(L, arg)))
	case 'x', 'X':
		return fmt.Appendf(b, d.unsigned().verb(verb), toUnsigned(checkNumber(L, arg)))
	case 'e', 'f', 'g':
		return d.float(b, verb, checkNumber(L, arg))
	case 's':
		text := checkString(L, arg)
		if d.precision == "" && len(text) >= 100 {
			return append(b, text...)
		}
		text = cString(text)
		if d.precision != "" {
			text = text[:min(digitsOf(d.precision[1:]), len(text))]
		}
		return d.pad(b, text)
	}
	shown := ""
	if verb != 0 {
		shown = string([]byte{verb})
	}
	raiseError(L, "invalid option '%%%s' to 'format'", shown)
	return nil
}

func digitsOf(text string) int {
	n, _ := strconv.Atoi(text) // at most two digits
	return n
}

func (d directive) has(flag string) bool { return strings.Contains(d.flags, flag) }

// sign returns the prefix of a number that is not negative.
func (d directive) sign() string {
	switch {
	case d.has("+"):
		return "+"
	case d.has(" "):
		return " "
	}
	return ""
}

// omitsZero reports whether an integer 0 has no digits, as with %.0d.
func (d directive) omitsZero() bool { return d.precision != "" && digitsOf(d.precision[1:]) == 0 }

// unsigned returns the directive without the flags that C ignores in unsigned numbers.
func (d directive) unsigned() directive {
	d.flags = strings.NewReplacer("+", "", " ", "").Replace(d.flags)
	return d
}

// verb returns a verb of package fmt.
func (d directive) verb(letter byte) string {
	return "%" + d.flags + d.width + d.precision + string(letter)
}

func (d directive) float(b []byte, verb byte, f float64) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		text := string(appendNumber(nil, f))
		if !math.Signbit(f) {
			text = d.sign() + text
		}
		return d.pad(b, text)
	}
	if d.precision == "" {
		d.precision = ".6"
	}
	return fmt.Appendf(b, d.verb(verb), f)
}

// pad pads a text with spaces to the width in bytes. fmt would count characters.
func (d directive) pad(b []byte, text string) []byte {
	fill := strings.Repeat(" ", max(0, digitsOf(d.width)-len(text)))
	if d.has("-") {
		return append(append(b, text...), fill...)
	}
	return append(append(b, fill...), text...)
}
