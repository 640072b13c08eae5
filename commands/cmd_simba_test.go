package commands

import (
	"bytes"
	"testing"
)

// A client must not make the server allocate without limit.
func TestANameThatIsTooLongIsNotCopied(t *testing.T) {
	huge := bytes.Repeat([]byte("x"), 64<<10)
	refused := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			for _, names := range [][2][]byte{{huge, []byte("c")}, {[]byte("m"), huge}, {huge, huge}} {
				if _, _, err := parseNames(names[0], names[1]); err == nil {
					b.Fatal("parseNames accepts a name of 64 KiB")
				}
			}
			if _, err := parseMutex(huge); err == nil {
				b.Fatal("parseMutex accepts a name of 64 KiB")
			}
		}
	})
	if n := refused.AllocedBytesPerOp(); n > 4<<10 {
		t.Errorf("four refusals allocate %d bytes, want at most 4 KiB", n)
	}
	if m, c, err := parseNames([]byte("m"), []byte("c")); m != "m" || c != "c" || err != nil {
		t.Errorf("parseNames returned %q, %q, %v, want m and c", m, c, err)
	}
}
