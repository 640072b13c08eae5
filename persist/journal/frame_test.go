package journal

import (
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sys/unix"
)

func TestEveryBitOfAHeaderIsChecked(t *testing.T) {
	h := header{number: 1, first: 1}
	b := h.encode()
	for bit := range len(b) * 8 {
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := decodeHeader(b); err == nil || errors.Is(err, ErrNewer) {
			t.Fatalf("with bit %d of byte %d flipped, decodeHeader returns %v, want damage", bit%8, bit/8, err)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
}

func TestRecordsOfAnySizeComeBack(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	var want []string
	for _, n := range []int{0, 1, 7, 8, 9, 0, 4000, 4016, 4017, 4057, 4096, 100, 8192, 1 << 20, 0, 50_000, 1} {
		want = append(want, strings.Repeat(string(rune('a'+len(want))), n))
		mustAppend(t, j, want[len(want)-1])
		if kept := cap(j.frame); kept > 1<<20 {
			t.Errorf("the journal keeps a buffer of %d bytes, want at most 1 MiB", kept)
		}
	}
	mustClose(t, j)
	j = mustOpen(t, o)
	defer mustClose(t, j)
	wantPayloads(t, payloads(t, j, 0), want)
}

func TestARecordThatIsTooLargeIsRefused(t *testing.T) {
	j := mustOpen(t, testOptions(vfs.NewMem()))
	defer mustClose(t, j)
	// The mapping takes no memory, since nothing reads its pages.
	large, err := unix.Mmap(-1, 0, MaxPayload+1, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(large)
	if _, err := j.Append(large); err != ErrTooLarge {
		t.Errorf("Append returned %v, want ErrTooLarge", err)
	}
	mustWrite(t, j, "the next one is written")
}

// If a file ends inside a large record, Open must not allocate memory for the whole record.
func TestALengthBeyondTheFileTakesNoMemory(t *testing.T) {
	o := testOptions(vfs.NewMem())
	j := mustOpen(t, o)
	mustWrite(t, j, "record 1")
	head := memory(t, o, segmentName(1))[j.offset:][:headSize]
	copy(head, appendFrame(nil, j.current.salt, frame{index: 2, durable: 1, kind: record}, nil))
	binary.LittleEndian.PutUint32(head[32:], MaxPayload)
	binary.LittleEndian.PutUint64(head, checksum(j.current.salt, head[8:]))
	abandon(j)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	j = mustOpen(t, o)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("Open allocated %d bytes, want at most 16 MiB", took)
	}
	wantPayloads(t, payloads(t, j, 0), numbered(1, 1))
	mustClose(t, j)
}

// Clients choose the contents of payloads. A payload may look like a frame which states that a
// later record was durable. Open must not take it for a frame, since no client knows the salt.
func TestClientsDataIsNeverTakenForFrames(t *testing.T) {
	forge := func(salt uint64) string {
		var b []byte
		for i := range uint64(30) {
			b = appendFrame(b, salt, frame{index: 100 + i, durable: 99 + i, kind: record}, []byte("evil"))
			b = appendFrame(b, salt, frame{index: i, durable: i, kind: seal}, nil)
		}
		return string(b)
	}
	for _, guess := range []uint64{0, 1, 1 << 63} {
		for _, known := range []bool{false, true} {
			o := testOptions(vfs.NewMem())
			j := mustOpen(t, o)
			mustWrite(t, j, "first")
			second := j.offset
			mustAppend(t, j, "second")
			if known {
				guess = j.current.salt
			}
			mustAppend(t, j, forge(guess))
			abandon(j)
			memory(t, o, segmentName(1))[second+headSize]++ // the second record is torn
			if known {                                      // so the forgery has the salt
				wantDamage(t, o, segmentName(1), second)
				continue
			}
			j = mustOpen(t, o)
			wantPayloads(t, payloads(t, j, 0), []string{"first"})
			mustClose(t, j)
		}
	}
}
