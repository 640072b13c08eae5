package script

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"
)

// stringFormat is string.format, by the rules of C's printf.
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

func parseDirective(L *lua.LState, text string) directive {
	count := func(from int, accept string, most int) int {
		n := 0
		for n < most && from+n < len(text) && strings.IndexByte(accept, text[from+n]) >= 0 {
			n++
		}
		return n
	}
	var d directive
	flags := count(0, "-+ #0", len(text))
	if flags >= 6 {
		raiseError(L, "invalid format (repeated flags)")
	}
	d.flags = text[:flags]
	at := flags
	n := count(at, "0123456789", 2)
	d.width = text[at : at+n]
	at += n
	if count(at, ".", 1) == 1 {
		n = 1 + count(at+1, "0123456789", 2)
		d.precision = text[at : at+n]
		at += n
	}
	if count(at, "0123456789", 1) > 0 {
		raiseError(L, "invalid format (width or precision too long)")
	}
	d.length = at
	return d
}

func (d directive) append(L *lua.LState, b []byte, verb byte, arg int) []byte {
	switch verb {
	case 'c':
		c := byte(cInt(checkNumber(L, arg)))
		return append(b, cString(string(d.pad(nil, string([]byte{c}))))...)
	case 'd', 'i':
		n := toInteger(checkNumber(L, arg))
		if n == 0 && d.omitsZero() {
			return d.pad(b, d.sign()) // fmt writes no sign
		}
		return fmt.Appendf(b, d.verb('d', "#"), n)
	case 'u':
		return fmt.Appendf(b, d.verb('d', "#+ "), toUnsigned(checkNumber(L, arg)))
	case 'o', 'x', 'X':
		return d.bits(b, verb, toUnsigned(checkNumber(L, arg)))
	case 'e', 'E', 'f', 'g', 'G':
		return d.float(b, verb, checkNumber(L, arg))
	case 'q':
		return appendQuoted(b, checkString(L, arg))
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

// verb returns a verb of package fmt, without flags that C ignores.
func (d directive) verb(letter byte, ignored string) string {
	flags := strings.Map(func(flag rune) rune {
		if strings.ContainsRune(ignored, flag) {
			return -1
		}
		return flag
	}, d.flags)
	return "%" + flags + d.width + d.precision + string(letter)
}

func (d directive) bits(b []byte, verb byte, n uint64) []byte {
	ignored := "+ "
	switch {
	case !d.has("#"):
	case n == 0 && verb != 'o':
		ignored += "#" // C writes 0 without 0x
	case n == 0 && d.omitsZero():
		return d.pad(b, "0") // fmt writes no digit
	case verb != 'o' && d.has("0") && !d.has("-") && d.precision == "":
		// fmt pads the digits alone to the width. C pads them together with 0x.
		d.precision = fmt.Sprintf(".%d", max(0, digitsOf(d.width)-len("0x")))
	}
	return fmt.Appendf(b, d.verb(verb, ignored), n)
}

func (d directive) float(b []byte, verb byte, f float64) []byte {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		text := string(appendNumber(nil, f))
		if !math.Signbit(f) {
			text = d.sign() + text
		}
		if verb < 'a' {
			text = strings.ToUpper(text)
		}
		return d.pad(b, text)
	}
	if d.precision == "" {
		d.precision = ".6"
	}
	return fmt.Appendf(b, d.verb(verb, ""), f)
}

// pad pads a text with spaces to the width in bytes. fmt would count characters.
func (d directive) pad(b []byte, text string) []byte {
	fill := strings.Repeat(" ", max(0, digitsOf(d.width)-len(text)))
	if d.has("-") {
		return append(append(b, text...), fill...)
	}
	return append(append(b, fill...), text...)
}

func appendQuoted(b []byte, text string) []byte {
	b = append(b, '"')
	for i := range len(text) {
		switch c := text[i]; c {
		case '"', '\\', '\n':
			b = append(b, '\\', c)
		case '\r':
			b = append(b, `\r`...)
		case 0:
			b = append(b, `\000`...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
