package zookeeper

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/simba-resp/simba-resp"
)

func TestOnlyForbiddenNamesAreEncoded(t *testing.T) {
	for name, want := range map[string]string{
		"order:42": "order:42", "...": "...", "äöü": "äöü", "名前": "名前",
		"a/b": "a%2Fb", "100%": "100%25", "%2F": "%252F", ".": "%2E", "..": "%2E%2E", "x\U0001F512": "x%F0%9F%94%92", "\uFFFD": "%EF%BF%BD",
	} {
		got := encodeName(name)
		if got != want {
			t.Errorf("encodeName(%q) is %q, want %q", name, got, want)
		}
		if back, ok := decodeName(got); !ok || back != name {
			t.Errorf("decodeName of the node of %q: %q, %v; want the name", name, back, ok)
		}
	}
	for _, foreign := range []string{".", "..", "%", "%2", "%zz", "%41", "%2f", "a%"} {
		if name, ok := decodeName(foreign); ok {
			t.Errorf("decodeName(%q) returned the mutex %q; want no mutex", foreign, name)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a/b%2F..")
	f.Fuzz(func(t *testing.T, name string) {
		if simba.CheckMutex(name) != nil {
			return
		}
		node := encodeName(name)
		if back, ok := decodeName(node); !ok || back != name {
			t.Errorf("%q is encoded as %q, which is decoded as %q, %v", name, node, back, ok)
		}
		if strings.Contains(node, "/") || node == "." || node == ".." || !utf8.ValidString(node) {
			t.Errorf("encodeName(%q) is %q, which is no valid node name", name, node)
		}
	})
}

func TestChildrenAreOrderedAsInCurator(t *testing.T) {
	children := []string{
		"_c_ffffffff-0000-0000-0000-000000000000-latch-0000000002",
		"_c_00000000-0000-0000-0000-000000000000-latch-0000000010",
		"latch-0000000001",
		"_c_aaaaaaaa-latch-0000-0000-000000000000-latch-0000000003",
	}
	sortChildren(children)
	var numbers []string
	for _, c := range children {
		numbers = append(numbers, c[len(c)-2:])
	}
	if want := []string{"01", "02", "03", "10"}; !slices.Equal(numbers, want) {
		t.Errorf("the children are in the order %v, want that of their numbers", numbers)
	}
}
