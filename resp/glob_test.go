package resp

import (
	"strings"
	"testing"
	"time"

	"github.com/simba-resp/simba-resp/tests/need"
)

func TestGlobsMatchAsInRedis(t *testing.T) {
	tests := []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"*", "", true}, {"*", "anything", true},
		{"simba:{*}", "simba:{job}", true}, {"simba:{*}", "simba:{job}:a", false},
		{"h?llo", "hello", true}, {"h?llo", "hllo", false}, {"?", "", false},
		{"h[ae]llo", "hallo", true}, {"h[ae]llo", "hillo", false},
		{"h[^e]llo", "hallo", true}, {"h[^e]llo", "hello", false},
		{"h[a-c]llo", "hbllo", true}, {"h[c-a]llo", "hbllo", true}, {"h[a-c]llo", "hdllo", false},
		{"[\\]]", "]", true}, {"[]", "a", false}, {"[a", "a", true}, {"[", "a", false}, {"[^]", "a", true},
		{"a\\*", "a*", true}, {"a\\*", "ab", false}, {"a\\", "a\\", true},
		{"*a*b*c", "xxaxxbxxc", true}, {"*a*b*c", "xxaxxcxxb", false},
		{"**", "x", true}, {"a*", "b", false}, {"*b", "aab", true}, {"a**c", "abc", true},
	}
	for _, tt := range tests {
		if got := Match(tt.pattern, tt.s); got != tt.want {
			t.Errorf("Match(%q, %q) = %t, want the opposite", tt.pattern, tt.s, got)
		}
	}
}

func TestGlobTimeIsBounded(t *testing.T) {
	start := time.Now()
	if Match(strings.Repeat("a*", 30)+"b", strings.Repeat("a", 1000)) {
		t.Error("a pattern that ends with b matches a string of a")
	}
	if d := time.Since(start); d > need.Hang {
		t.Errorf("Match took %v, want at most %v", d, need.Hang)
	}
}
