package script

import (
	"fmt"
	"math"
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
			L.RaiseError("string length overflow")
		}
	}
	s.checkLength(L, len(b))
	L.Push(lua.LString(b))
	return 1
}

// directive is what stands between the % and the letter.
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
		L.RaiseError("invalid format (repeated flags)")
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
		L.RaiseError("invalid format (width or precision too long)")
	}
	d.length = at
	return d
}

func (d directive) append(L *lua.LState, b []byte, verb byte, arg int) []byte {
	all := "%" + d.flags + d.width + d.precision
	switch verb {
	case 'c':
		return padded(b, string([]byte{byte(checkInt(L, arg))}), d)
	case 'd', 'i':
		return fmt.Appendf(b, all+"d", int64(toInt(checkNumber(L, arg))))
	case 'u':
		return fmt.Appendf(b, all+"d", uint64(toInt(checkNumber(L, arg))))
	case 'o', 'x', 'X':
		return fmt.Appendf(b, all+string(verb), uint64(toInt(checkNumber(L, arg))))
	case 'e', 'E', 'f', 'g', 'G':
		f := checkNumber(L, arg)
		if math.IsInf(f, 0) || math.IsNaN(f) {
			flags := strings.ReplaceAll(d.flags, "0", "")
			return fmt.Appendf(b, "%"+flags+d.width+"s", string(appendNumber(nil, f)))
		}
		if d.precision == "" {
			all += ".6"
		}
		return fmt.Appendf(b, all+string(verb), f)
	case 'q':
		return appendQuoted(b, checkString(L, arg))
	case 's':
		text := checkString(L, arg)
		if d.precision != "" {
			n := 0
			for _, c := range d.precision[1:] {
				n = n*10 + int(c-'0')
			}
			text = text[:min(n, len(text))]
		} else if len(text) >= 100 {
			return append(b, text...)
		}
		return padded(b, text, d)
	}
	shown := ""
	if verb != 0 {
		shown = string([]byte{verb})
	}
	L.RaiseError("invalid option '%%%s' to 'format'", shown)
	return nil
}

// padded counts bytes where fmt would count characters.
func padded(b []byte, text string, d directive) []byte {
	width := 0
	for _, c := range d.width {
		width = width*10 + int(c-'0')
	}
	fill := strings.Repeat(" ", max(0, width-len(text)))
	if strings.Contains(d.flags, "-") {
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
