package resp

import (
	"slices"
	"strings"
	"testing"
)

// FuzzReader checks that no input makes the reader panic or exceed its memory. The same bytes must
// yield the same commands and the same error in any pieces. No command may exceed the limits that
// apply before or after authentication.
func FuzzReader(f *testing.F) {
	for _, data := range []string{
		"*1\r\n$4\r\nPING\r\n",
		"*1\r\n$9223372036854775807\r\nPING\r\n",
		"*9223372036854775807\r\n",
		"*18446744073709551617\r\n$4\r\nPING\r\n",
		"*1\r\n$18446744073709551620\r\nPING\r\n",
		"*-9223372036854775808\r\n*-2147483649\r\nPING\r\n",
		"*1\r\n\n", "PING \x00x\r\n", "*1\x00\r\n", "ECHO \"a\"\v\r\n", "*1\rx$4\r\nPING\r\n",
		"*3\r\n$4\r\nEVAL\r\n$60\r\n" + strings.Repeat("s", 60) + "\r\n$65\r\n" + strings.Repeat("s", 65) + "\r\n",
		"*0\r\n*-1\r\n\r\nPING\r\n",
		"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n*1\r\n$-1\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\n\r\n",
		"set \"a\\x00b\\n\" 'c\\'d' e\"f\"\r\n",
		"PING \"open\r\n",
		"*1\r\n$4\r\nPINGxx",
		"*1\r\nx",
		"*11\r\n",
		"*1\r\n$16385\r\n",
		strings.Repeat("x", 300),
		"*" + strings.Repeat("1", 300),
		"*3\r\n" + strings.Repeat("$40\r\n"+strings.Repeat("y", 40)+"\r\n", 3),
	} {
		f.Add([]byte(data), 1, false)
		f.Add([]byte(data), 3, true)
	}
	small := Limits{Args: 16, Arg: 64, Command: 100, Inline: 128,
		MayBeLong: func(name []byte) bool { return string(name) == "EVAL" }}.withDefaults()
	f.Fuzz(func(t *testing.T, data []byte, piece int, unauth bool) {
		for _, l := range []Limits{small, defaults()} {
			whole, wholeErr := parse(t, l, unauth, string(data), 0)
			split, splitErr := parse(t, l, unauth, string(data), max(piece, 1))
			if !slices.Equal(whole, split) || !sameError(wholeErr, splitErr) {
				t.Errorf("read whole: %v, %v\nread in pieces of %d: %v, %v", whole, wholeErr, piece, split, splitErr)
			}
		}
	})
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Error() == b.Error()
}
