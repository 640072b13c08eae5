package journal

import (
	"encoding/binary"
	"hash/crc32"
)

// A kind says what a frame is.
type kind byte

const (
	// record is the frame of a record.
	record kind = 1
	// seal is the last frame of a segment after a clean stop. Its index is that of
	// the record that would follow, and it has no payload.
	seal kind = 2
)

const (
	// headSize is the size of a frame without its payload, in bytes.
	headSize = 40
	// align is what the offsets and sizes of frames are multiples of.
	align = 8
)

// frame is the head of a frame. Numbers are little endian, offsets and lengths
// are in bytes:
//
//	 0  8  salt of the segment
//	 8  8  index
//	16  8  durable index: up to it, records were durable when this one was written
//	24  4  length of the payload
//	28  1  kind
//	32  4  CRC-32C of the payload and the zeros behind it
//	36  4  CRC-32C of the head before this
//	40  …  payload, then zeros up to a multiple of 8
//
// Whatever is not named is zero. The head has a checksum of its own, so that a
// search for frames needs no payloads, and no length is trusted unchecked.
type frame struct {
	index   uint64
	durable uint64
	length  uint32
	kind    kind
	sum     uint32
}

// frameSize returns how many bytes the frame of a payload takes.
func frameSize(payload int) int64 { return headSize + roundUp(int64(payload), align) }

// appendFrame appends a frame with its payload. It sets the length and the
// checksums itself.
func appendFrame(b []byte, salt uint64, f frame, payload []byte) []byte {
	head := len(b)
	b = append(b, make([]byte, headSize)...)
	b = append(b, payload...)
	b = append(b, make([]byte, frameSize(len(payload))-headSize-int64(len(payload)))...)
	h := b[head : head+headSize]
	binary.LittleEndian.PutUint64(h[0:], salt)
	binary.LittleEndian.PutUint64(h[8:], f.index)
	binary.LittleEndian.PutUint64(h[16:], f.durable)
	binary.LittleEndian.PutUint32(h[24:], uint32(len(payload)))
	h[28] = byte(f.kind)
	binary.LittleEndian.PutUint32(h[32:], crc32.Checksum(b[head+headSize:], castagnoli))
	binary.LittleEndian.PutUint32(h[36:], crc32.Checksum(h[:36], castagnoli))
	return b
}

// decodeFrame returns the head in h, or false if there is none of a segment with
// this salt.
func decodeFrame(h []byte, salt uint64) (frame, bool) {
	if binary.LittleEndian.Uint64(h) != salt ||
		binary.LittleEndian.Uint32(h[36:]) != crc32.Checksum(h[:36], castagnoli) {
		return frame{}, false
	}
	return frame{
		index:   binary.LittleEndian.Uint64(h[8:]),
		durable: binary.LittleEndian.Uint64(h[16:]),
		length:  binary.LittleEndian.Uint32(h[24:]),
		kind:    kind(h[28]),
		sum:     binary.LittleEndian.Uint32(h[32:]),
	}, true
}
