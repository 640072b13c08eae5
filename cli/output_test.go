package cli

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// Each escaped name can be decoded, so no two names look alike.
func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "job", `a\b`, "\x1b[2J", "\xff", "日本", "\ufffd", "a\tb\n", "\u202e", `"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := Printable(s)
		if !utf8.ValidString(shown) {
			t.Errorf("%q is not valid UTF-8", shown)
		}
		for _, r := range shown {
			if !strconv.IsPrint(r) {
				t.Errorf("escaped name %q has the unprintable %q", shown, r)
			}
		}
		back := ""
		for rest := shown; rest != ""; {
			r, multibyte, tail, err := strconv.UnquoteChar(rest, 0)
			if err != nil {
				t.Fatalf("escaped name %q cannot be decoded: %v", shown, err)
			}
			if multibyte {
				back += string(r)
			} else {
				back += string([]byte{byte(r)})
			}
			rest = tail
		}
		if back != s {
			t.Errorf("%q is shown as %q, which decodes to %q", s, shown, back)
		}
	})
}

func TestDurationsAreShort(t *testing.T) {
	for ms, want := range map[int64]string{
		0: "0ms", 999: "999ms", 1000: "1.0s", 59_999: "59.9s", 60_000: "1m0s", 600_000: "10m0s", 90_061_000: "25h1m1s",
	} {
		if got := millis(ms); got != want {
			t.Errorf("millis(%d) is %s, want %s", ms, got, want)
		}
	}
}

func TestJSONHasNoCharacterThatATerminalObeys(t *testing.T) {
	name := "a\x1b[2J\x7f\u009b31m\u202e\U000e0001日本<&> \\ \""
	var out strings.Builder
	if err := printJSON(&out, Hidden{Mutex: name}); err != nil {
		t.Fatal(err)
	}
	line := strings.TrimSuffix(out.String(), "\n")
	for _, r := range line {
		if !strconv.IsPrint(r) {
			t.Errorf("JSON %q has the unprintable %q", line, r)
		}
	}
	if !strings.Contains(line, "日本<&>") {
		t.Errorf("JSON %q escapes printable characters", line)
	}
	var back Hidden
	if err := json.Unmarshal([]byte(line), &back); err != nil || back.Mutex != name {
		t.Errorf("JSON %q decodes to %q: %v", line, back.Mutex, err)
	}
}

func TestUptimeIsInWholeSeconds(t *testing.T) {
	for ms, want := range map[int64]string{0: "0s", 59_000: "59s", 3_661_000: "1h1m1s"} {
		if got := seconds(ms); got != want {
			t.Errorf("seconds(%d) is %q, want %q", ms, got, want)
		}
	}
}
