package script

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	lua "github.com/yuin/gopher-lua"
)

const (
	// maxJSONDepth is the maximum nesting of JSON, as in Redis' cjson.
	maxJSONDepth = 1000
	// A table with numeric keys is an array if its highest key is at most safeSparse. If its
	// highest key is larger, it must have elements for at least 1/sparseRatio of the keys.
	// Otherwise it cannot be encoded.
	safeSparse  = 10
	sparseRatio = 2
)

// jsonLibrary returns cjson with its default settings, which scripts cannot change.
func (s *state) jsonLibrary() *lua.LTable {
	t := s.table(map[string]lua.LGFunction{"encode": s.jsonEncode, "decode": s.jsonDecode})
	t.RawSetString("null", s.null)
	t.RawSetString("_NAME", lua.LString("cjson"))
	t.RawSetString("_VERSION", lua.LString("2.1.0"))
	return t
}

func (s *state) jsonEncode(L *lua.LState) int {
	if L.GetTop() != 1 {
		badArgument(L, 1, "expected 1 argument")
	}
	e := jsonEncoder{s: s, L: L}
	e.value(L.Get(1), 0)
	s.checkLength(L, len(e.b))
	return push(L, lua.LString(e.b))
}

type jsonEncoder struct {
	s *state
	L *lua.LState
	b []byte
}

func (e *jsonEncoder) value(v lua.LValue, depth int) {
	e.s.spend(e.L, 1)
	if len(e.b) > maxString {
		raiseError(e.L, "string length overflow")
	}
	switch v := v.(type) {
	case lua.LString:
		e.text(string(v))
	case lua.LNumber:
		e.number(v)
	case lua.LBool:
		e.b = strconv.AppendBool(e.b, bool(v))
	case *lua.LTable:
		if depth++; depth > maxJSONDepth {
			raiseError(e.L, "Cannot serialise, excessive depth (%d)", depth)
		}
		t := e.s.content(v)
		if n := e.arrayLength(t); n > 0 {
			e.array(t, n, depth)
		} else {
			e.object(t, depth)
		}
	default:
		if v != lua.LNil && v != e.s.null {
			raiseError(e.L, "Cannot serialise %s: type not supported", v.Type().String())
		}
		e.b = append(e.b, "null"...)
	}
}

func (e *jsonEncoder) number(n lua.LNumber) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		raiseError(e.L, "Cannot serialise number: must not be NaN or Inf")
	}
	e.b = appendNumber(e.b, float64(n))
}

// arrayLength returns the highest key of an array, or 0 if the table is an object.
func (e *jsonEncoder) arrayLength(t *lua.LTable) int {
	highest, n := 0, 0
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		f, ok := k.(lua.LNumber)
		if !ok || f < 1 || f != lua.LNumber(math.Floor(float64(f))) {
			return 0
		}
		if v != lua.LNil {
			n++
			if int(f) > highest || f > math.MaxInt32 {
				highest = cInt(float64(f))
			}
		}
	}
	if highest > safeSparse && highest > n*sparseRatio {
		raiseError(e.L, "Cannot serialise table: excessively sparse array")
	}
	return highest
}

func (e *jsonEncoder) array(t *lua.LTable, n, depth int) {
	e.b = append(e.b, '[')
	for i := 1; i <= n; i++ {
		if i > 1 {
			e.b = append(e.b, ',')
		}
		e.value(t.RawGet(lua.LNumber(i)), depth)
	}
	e.b = append(e.b, ']')
}

func (e *jsonEncoder) object(t *lua.LTable, depth int) {
	e.b = append(e.b, '{')
	first := true
	for k, v := t.Next(lua.LNil); k != lua.LNil; k, v = t.Next(k) {
		if !first {
			e.b = append(e.b, ',')
		}
		first = false
		switch k := k.(type) {
		case lua.LString:
			e.text(string(k))
		case lua.LNumber:
			e.b = append(e.b, '"')
			e.number(k)
			e.b = append(e.b, '"')
		default:
			raiseError(e.L, "Cannot serialise %s: table key must be a number or string", k.Type().String())
		}
		e.b = append(e.b, ':')
		e.value(v, depth)
	}
	e.b = append(e.b, '}')
}

// jsonEscapes are the escapes that cjson writes, by byte.
var jsonEscapes = func() *strings.Replacer {
	pairs := []string{`"`, `\"`, `\`, `\\`, "/", `\/`, "\b", `\b`, "\t", `\t`, "\n", `\n`, "\f", `\f`, "\r", `\r`, "\x7f", `\u007f`}
	for c := range " "[0] {
		if strings.IndexByte("\b\t\n\f\r", c) < 0 {
			pairs = append(pairs, string(rune(c)), fmt.Sprintf(`\u%04x`, c))
		}
	}
	return strings.NewReplacer(pairs...)
}()

func (e *jsonEncoder) text(text string) {
	e.s.spend(e.L, len(text)/32)
	e.b = append(append(append(e.b, '"'), jsonEscapes.Replace(text)...), '"')
}

func (s *state) jsonDecode(L *lua.LState) int {
	if L.GetTop() != 1 {
		badArgument(L, 1, "expected 1 argument")
	}
	d := jsonDecoder{s: s, L: L, text: checkString(L, 1)}
	s.spend(L, len(d.text)/16)
	if len(d.text) >= 2 && (d.text[0] == 0 || d.text[1] == 0) {
		raiseError(L, "JSON parser does not support UTF-16 or UTF-32")
	}
	v := d.value(0)
	d.blanks()
	if d.at < len(d.text) && d.text[d.at] != 0 { // cjson ignores text after a NUL
		d.fail("the end")
	}
	return push(L, v)
}

type jsonDecoder struct {
	s    *state
	L    *lua.LState
	text string
	at   int
}

func (d *jsonDecoder) fail(want string) {
	found := "invalid token"
	if d.at >= len(d.text) {
		found = "T_END"
	}
	raiseError(d.L, "Expected %s but found %s at character %d", want, found, d.at+1)
}

func (d *jsonDecoder) blanks() {
	for d.at < len(d.text) && strings.IndexByte(" \t\r\n", d.text[d.at]) >= 0 {
		d.at++
	}
}

// accept skips spaces, and c if it follows.
func (d *jsonDecoder) accept(c byte) bool {
	d.blanks()
	if d.at < len(d.text) && d.text[d.at] == c {
		d.at++
		return true
	}
	return false
}

func (d *jsonDecoder) word(word string) bool {
	if len(d.text)-d.at >= len(word) && d.text[d.at:d.at+len(word)] == word {
		d.at += len(word)
		return true
	}
	return false
}

func (d *jsonDecoder) value(depth int) lua.LValue {
	d.s.spend(d.L, 1)
	if depth > maxJSONDepth {
		raiseError(d.L, "Found too many nested data structures (%d)", depth)
	}
	switch {
	case d.accept('{'):
		return d.object(depth + 1)
	case d.accept('['):
		return d.array(depth + 1)
	case d.accept('"'):
		return lua.LString(d.string())
	case d.word("true"):
		return lua.LTrue
	case d.word("false"):
		return lua.LFalse
	case d.word("null"):
		return d.s.null
	}
	return d.number()
}

func (d *jsonDecoder) object(depth int) lua.LValue {
	t := newTable(0, 0)
	if d.accept('}') {
		return t
	}
	for {
		if !d.accept('"') {
			d.fail("object key string")
		}
		key := d.string()
		if !d.accept(':') {
			d.fail("colon")
		}
		t.RawSetString(key, d.value(depth))
		if d.accept('}') {
			return t
		}
		if !d.accept(',') {
			d.fail("comma or object end")
		}
	}
}

func (d *jsonDecoder) array(depth int) lua.LValue {
	t := newTable(0, 0)
	if d.accept(']') {
		return t
	}
	for i := 1; ; i++ {
		t.RawSetInt(i, d.value(depth))
		if d.accept(']') {
			return t
		}
		if !d.accept(',') {
			d.fail("comma or array end")
		}
	}
}

func (d *jsonDecoder) number() lua.LValue {
	end := d.at
	for end < len(d.text) && (isDigit(d.text[end]) || isLetter(d.text[end]) || d.text[end] == '.' || d.text[end] == '-' || d.text[end] == '+') {
		end++
	}
	f, ok := parseNumber(d.text[d.at:end])
	if !ok || d.text[d.at] == '.' {
		d.fail("value")
	}
	d.at = end
	return lua.LNumber(f)
}

// string reads the rest of a string, after its first quote.
func (d *jsonDecoder) string() string {
	var b []byte
	for d.at < len(d.text) {
		c := d.text[d.at]
		d.at++
		switch {
		case c == '"':
			return string(b)
		case c == 0:
			d.at--
			d.fail("string without NUL")
		case c != '\\':
			b = append(b, c)
			continue
		}
		b = d.escape(b)
	}
	d.fail("end of string")
	return ""
}

func (d *jsonDecoder) escape(b []byte) []byte {
	if d.at >= len(d.text) {
		d.fail("escape code")
	}
	c := d.text[d.at]
	d.at++
	if c == 'u' {
		return utf8.AppendRune(b, d.unicode())
	}
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		return append(b, "\"\\/\b\f\n\r\t"[i])
	}
	d.at--
	d.fail("valid escape code")
	return nil
}

func (d *jsonDecoder) unicode() rune {
	r := d.hex4()
	if !utf16.IsSurrogate(r) {
		return r
	}
	if r < 0xDC00 && d.word(`\u`) {
		if pair := utf16.DecodeRune(r, d.hex4()); pair != utf8.RuneError {
			return pair
		}
	}
	d.fail("valid unicode escape code")
	return 0
}

func (d *jsonDecoder) hex4() rune {
	if d.at+4 > len(d.text) {
		d.fail("valid unicode escape code")
	}
	n, err := strconv.ParseUint(d.text[d.at:d.at+4], 16, 16)
	if err != nil {
		d.fail("valid unicode escape code")
	}
	d.at += 4
	return rune(n)
}
