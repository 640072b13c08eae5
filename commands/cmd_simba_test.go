package commands

import (
	"bytes"
	"testing"
)

// TestANameThatIsTooLongIsNotCopied: a client must not cause garbage without limit.
func TestANameThatIsTooLongIsNotCopied(t *testing.T) {
	huge := bytes.Repeat([]byte("x"), 64<<10)
	refused := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for _, names := range [][2][]byte{{huge, []byte("c")}, {[]byte("m"), huge}, {huge, huge}} {
				if _, _, err := parseNames(names[0], names[1]); err == nil {
					b.Fatal("a name of 64 KiB is taken")
				}
			}
			if _, err := parseMutex(huge); err == nil {
				b.Fatal("a mutex of 64 KiB is taken")
			}
		}
	})
	if n := refused.AllocedBytesPerOp(); n > 4<<10 {
		t.Errorf("%d bytes for four refusals", n)
	}
	if m, c, err := parseNames([]byte("m"), []byte("c")); m != "m" || c != "c" || err != nil {
		t.Errorf("%q, %q, %v", m, c, err)
	}
}
