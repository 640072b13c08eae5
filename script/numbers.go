package script

import (
	"math"
	"regexp"
	"strconv"
	"strings"

	lua "github.com/yuin/gopher-lua"

	"github.com/simba-resp/simba-resp/resp"
)

// This file converts numbers to text and to integers as C does on x86-64.

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// blanks are the spaces of C's isspace.
const blanks = " \t\n\v\f\r"

// invalid is the NaN of operations such as 0/0 in C. Its text is -nan.
var invalid = math.Copysign(math.NaN(), -1)

// signed returns f, unless f is NaN. Then it returns the first operand that is NaN, or invalid.
func signed(f float64, operands ...float64) float64 {
	if !math.IsNaN(f) {
		return f
	}
	for _, o := range operands {
		if math.IsNaN(o) {
			return o
		}
	}
	return invalid
}

// appendNumber appends a number as Lua prints it, by C's %.14g.
func appendNumber(b []byte, f float64) []byte { return appendG(b, f, 14, 1e14) }

// appendG appends f with so many significant digits as the argument digits says. All integers below
// limit fit into the digits.
func appendG(b []byte, f float64, digits int, limit float64) []byte {
	if f == math.Trunc(f) && math.Abs(f) < limit && (f != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(b, int64(f), 10)
	}
	return resp.AppendDouble(b, f, digits)
}

// plainString returns the text of a string or number.
func plainString(v lua.LValue) (string, bool) {
	switch v := v.(type) {
	case lua.LString:
		return string(v), true
	case lua.LNumber:
		return string(appendNumber(make([]byte, 0, 24), float64(v))), true
	}
	return "", false
}

// plainNumber returns the value of a number or numeric string.
func plainNumber(v lua.LValue) (float64, bool) {
	switch v := v.(type) {
	case lua.LNumber:
		return float64(v), true
	case lua.LString:
		return parseNumber(string(v))
	}
	return 0, false
}

// parseNumber reads a number as C's strtod does, with spaces around it. A NUL ends it.
func parseNumber(s string) (float64, bool) {
	s = strings.Trim(cString(s), blanks)
	digits, sign := s, 1.0
	if s != "" && (s[0] == '-' || s[0] == '+') {
		digits = s[1:]
		if s[0] == '-' {
			sign = -1
		}
	}
	if digits == "" || strings.IndexByte(digits, '_') >= 0 && !nanText.MatchString(digits) {
		return 0, false
	}
	switch c := digits[0]; {
	case len(digits) > 2 && c == '0' && digits[1]|0x20 == 'x':
		if !strings.ContainsAny(digits, "pP") {
			digits += "p0"
		}
	case isDigit(c) || c == '.':
	case strings.EqualFold(digits, "inf") || strings.EqualFold(digits, "infinity"):
		return math.Inf(int(sign)), true
	case nanText.MatchString(digits):
		return math.Copysign(invalid, sign), true
	default:
		return 0, false
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f * sign, true
}

// parseUnsigned reads a number as C's strtoul does, with spaces around it. A number that is too
// large becomes the highest one. A negative number wraps around.
func parseUnsigned(s string, base int) (uint64, bool) {
	s = strings.Trim(cString(s), blanks)
	digits := strings.TrimPrefix(s, "-")
	negative := digits != s
	if !negative {
		digits = strings.TrimPrefix(s, "+")
	}
	if len(digits) > 2 && base == 16 && digits[0] == '0' && digits[1]|0x20 == 'x' {
		digits = digits[2:]
	}
	letters := "0123456789abcdefghijklmnopqrstuvwxyz"[:base]
	if digits == "" || strings.Trim(digits, letters+strings.ToUpper(letters)) != "" {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, base, 64)
	switch {
	case err != nil: // too large
		return math.MaxUint64, true
	case negative:
		return -n, true
	}
	return n, true
}

// nanText matches the texts that C's strtod reads as NaN.
var nanText = regexp.MustCompile(`^[nN][aA][nN](\([A-Za-z0-9_]*\))?$`)

// cString returns s up to its first NUL, where a string ends in C.
func cString(s string) string {
	if end := strings.IndexByte(s, 0); end >= 0 {
		return s[:end]
	}
	return s
}

// toInteger converts to 64 bits. A number that does not fit becomes the lowest one.
func toInteger(f float64) int64 {
	if math.IsNaN(f) || f >= 1<<63 || f < -1<<63 {
		return math.MinInt64
	}
	return int64(f)
}

// toUnsigned converts to 64 bits without a sign.
func toUnsigned(f float64) uint64 {
	if f >= 1<<63 {
		return uint64(toInteger(f-1<<63)) ^ 1<<63
	}
	return uint64(toInteger(f))
}

// toInt converts to 64 bits, and returns the low 32 bits as a C int.
func toInt(f float64) int { return int(int32(toInteger(f))) }
