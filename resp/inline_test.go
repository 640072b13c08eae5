package resp

import (
	"slices"
	"testing"
)

func TestInlineCommandsAreSplitAsInRedis(t *testing.T) {
	tests := []struct{ line, want string }{
		{`a b`, `["a" "b"]`},
		{"\t a \v b ", `["a" "b"]`},
		{"a\vb", `["a\vb"]`},
		{`""`, `[""]`},
		{`"a b" ''`, `["a b" ""]`},
		{`a"b c"`, `["ab c"]`},
		{`"\n\r\t\b\a\\\"\q"`, `["\n\r\t\b\a\\\"q"]`},
		{`"\x00\xFf\x4a\xg0\x1"`, `["\x00\xffJxg0x1"]`},
		{`'\n\'\x41'`, `["\\n'\\x41"]`},
		{`\x41`, `["\\x41"]`},
		{`'a"b' "c'd"`, `["a\"b" "c'd"]`},
	}
	for _, tt := range tests {
		got, err := parse(t, defaults(), false, tt.line+"\r\n", 0)
		if err != nil || !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%s: commands %s, error %v; want %s", tt.line, got, err, tt.want)
		}
	}
}
