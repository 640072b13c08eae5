package zookeeper

import (
	"bytes"
	"encoding/binary"
	"testing"
)

func packet(number int32, zxid uint64, body string) []byte {
	p := binary.BigEndian.AppendUint32(nil, uint32(16+len(body)))
	p = binary.BigEndian.AppendUint32(p, uint32(number))
	p = binary.BigEndian.AppendUint64(p, zxid)
	p = binary.BigEndian.AppendUint32(p, 0)
	return append(p, body...)
}

func TestZxidsAreClearedInFragmentedReplies(t *testing.T) {
	sent := bytes.Join([][]byte{
		packet(1, 0x0102030405060708, "a reply"), packet(-2, 0x7f00000000000000, ""), packet(-1, 0x7f00000000000000, "an event"),
		packet(2, 0x0102030405060709, ""), packet(3, 0, "without"),
	}, nil)
	want := bytes.Join([][]byte{
		packet(1, 0, "a reply"), packet(-2, 0, ""), packet(-1, 0, "an event"), packet(2, 0, ""), packet(3, 0, "without"),
	}, nil)
	for piece := 1; piece <= len(sent); piece++ {
		var r reply
		got, largest := bytes.Clone(sent), int64(0)
		for rest := got; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			largest = max(largest, r.take(rest[:min(piece, len(rest))]))
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("take of pieces of %d bytes gives\n%x, want\n%x", piece, got, want)
		}
		if largest != 0x0102030405060709 {
			t.Fatalf("take of pieces of %d bytes returns the largest zxid %x, want that of reply 2", piece, largest)
		}
	}
}
