package persist

import (
	"strings"
	"testing"
)

func TestTheOffsetOfTheBootClockIsPartOfTheBootsID(t *testing.T) {
	for text, want := range map[string]string{
		"monotonic           0         0\nboottime            0         0\n": "0 0",
		"monotonic          -5         0\nboottime      1000000       250\n": "1000000 250",
		"monotonic           0         0\nboottime     -1000000 999999999\n": "-1000000 999999999",
		"boottime            7         8\nsomething new      1         2\n":  "7 8",
	} {
		if got, err := parseBootOffset(text); got != want || err != nil {
			t.Errorf("parseBootOffset(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "monotonic 0 0\n", "boottime 7\n"} {
		if got, err := parseBootOffset(text); err == nil {
			t.Errorf("parseBootOffset(%q) = %q, want an error", text, got)
		}
	}
	boot := MachineBoot()
	if id, offset, ok := strings.Cut(boot.ID, " boottime "); !ok || len(id) != 36 || offset == "" {
		t.Errorf("MachineBoot has the ID %q (%v), want the kernel's id with the offset", boot.ID, boot.Unknown)
	}
}
