package script

import (
	"fmt"
	"testing"
)

// formatted formats some numbers by each conversion, with the given flags.
const formatted = `local all = {}
for _, n in ipairs({0, 1, -1, 7, 8, 42, 255, -255, 1e15, -1e15, 1e19, 3.7, -3.7, 0.5, 1/0, -1/0, 1e300}) do
  for i = 1, 9 do
    all[#all+1] = string.format('%%%s' .. string.sub('diuxXefgs', i, i), n)
  end
end
return all`

func TestFormatFollowsPrintf(t *testing.T) {
	redis := realRedis(t)
	r := New(Config{})
	for _, flags := range []string{"", "-", "+", " ", "0", "-0", "+0", " 0", "+ ", "0+", "-+ 0"} {
		for _, width := range []string{"", "1", "5", "12"} {
			for _, precision := range []string{"", ".", ".0", ".1", ".3", ".15"} {
				source := fmt.Sprintf(formatted, flags+width+precision)
				want := redis.do(t, "EVAL", source, "0")
				if got := eval(t, r, echo, Call{Source: source}); got != want {
					t.Errorf("%%%s%s%s:\n got %q\nwant %q", flags, width, precision, got, want)
				}
			}
		}
	}
}
