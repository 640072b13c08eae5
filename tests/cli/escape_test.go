package cli

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// hostile are keys and names of mutexes that would harm a terminal.
var hostile = []string{
	"clear\x1b[2J\x1b]0;title\x07", "two\nlines\r", "tab\there", "invalid\xff\xc3", "wide日本語", "right\u202eleft", "zero\u200bwidth",
	"c1\u009b31m", "del\x7f", "nul\x00", "back\\slash", "replaced\ufffd", "line\u2028end",
}

// No command may print a control character of a name.
func TestNamesCannotControlATerminal(t *testing.T) {
	s := simbatest.Start(t)
	c := simbatest.GoRedis(t, s)
	for _, name := range hostile {
		simbatest.Must(t, c.Set(t.Context(), name, "v", time.Hour).Err())
	}
	const owned = "owned"
	simbatest.Must(t, c.Set(t.Context(), owned, strings.Join(hostile, " "), time.Hour).Err())

	list := run(t, url(s), "list")
	if n := strings.Count(list.out, "\n"); n != 1+len(hostile)+1 {
		t.Errorf("list prints %d lines:\n%q", n, list.out)
	}
	for _, want := range []string{`clear\x1b[2J\x1b]0;title\a `, `two\nlines\r `, `invalid\xff\xc3 `, "wide日本語 ", `right\u202eleft `, `back\\slash `} {
		if !strings.Contains(list.out, want) {
			t.Errorf("list does not print %q", want)
		}
	}
	outputs := []result{list}
	for _, args := range [][]string{{"owner", owned}, {"why", owned}, {"history", owned}, {"status"}, {"break", owned, "--yes"}} {
		r := run(t, url(s), args...)
		if r.code != 0 {
			t.Errorf("%v exits with code %d, want 0: %s", args, r.code, r.err)
		}
		outputs = append(outputs, r)
	}
	for _, name := range hostile {
		if !strings.Contains(name, "\x00") { // an argument cannot contain NUL
			outputs = append(outputs, run(t, url(s), "owner", name), run(t, url(s), "why", "job", "--contender", name), run(t, url(s), "status", "--user", name))
		}
	}
	for _, r := range outputs {
		for _, text := range []string{r.out, r.err} {
			for i, char := range text {
				if char != '\n' && !unicode.IsPrint(char) || char == utf8.RuneError {
					t.Errorf("the output %q has the control character %q at %d", text, char, i)
				}
			}
		}
	}
}

func TestWatchEscapesNames(t *testing.T) {
	s := simbatest.Start(t)
	w := watch(t, s, "*")
	c := simbatest.GoRedis(t, s)
	simbatest.Must(t, c.Set(t.Context(), "a\x1b[2J\nb", "v\xff\x07", time.Hour).Err())
	w.Wants(t, `acquired +a\\x1b\[2J\\nb  v\\ufffd\\a  token \d+$`)
	simbatest.Must(t, c.Publish(t.Context(), "simba-events:{x\x1b}", "no\x1bevent\nat all").Err())
	w.Wants(t, `# not an event of x\\x1b: no\\x1bevent\\nat all$`)
}
