package journal

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// A kind is the kind of a frame.
type kind byte

const (
	record kind = 1
	// seal is the last frame of a segment after a clean stop. It has the index after the last
	// record, and no payload.
	seal kind = 2
)

const (
	// headSize is the size of a frame without its payload, in bytes.
	headSize = 40
	// align is the unit of the offsets and sizes of frames, in bytes.
	align = 8
)

// frame is the head of a frame. Numbers are little endian, offsets and lengths are in bytes:
//
//	 0  8  checksum of the rest of the head
//	 8  8  checksum of the payload and the zeros behind it
//	16  8  index
//	24  8  durable index: up to it, records were durable when this one was written
//	32  4  length of the payload
//	36  1  kind
//	40  …  payload, then zeros up to a multiple of 8
//
// Other bytes are zero. The head has its own checksum. So a search for frames needs no payloads,
// and no unchecked length is trusted.
type frame struct {
	sum     uint64 // checksum of the payload
	index   uint64
	durable uint64
	length  uint32
	kind    kind
}

// checksum returns the XXH64 of b, seeded with a salt.
//
// A CRC would not suffice. A torn write leaves the first part of a new payload and the rest of an
// old one. CRCs are linear: if both payloads contain CRCs, such a mixture can have the CRC of the
// new payload, with any salt.
func checksum(salt uint64, b []byte) uint64 {
	var d xxhash.Digest
	d.ResetWithSeed(salt)
	_, _ = d.Write(b) // never fails
	return d.Sum64()
}

// frameSize returns the size of a payload's frame, in bytes.
func frameSize(payload int) int64 { return headSize + roundUp(int64(payload), align) }

// appendFrame appends a frame with its payload. It sets the length and the checksums itself.
func appendFrame(b []byte, salt uint64, f frame, payload []byte) []byte {
	head := len(b)
	b = append(b, make([]byte, headSize)...)
	b = append(b, payload...)
	b = append(b, make([]byte, frameSize(len(payload))-headSize-int64(len(payload)))...)
	h := b[head : head+headSize]
	binary.LittleEndian.PutUint64(h[8:], checksum(salt, b[head+headSize:]))
	binary.LittleEndian.PutUint64(h[16:], f.index)
	binary.LittleEndian.PutUint64(h[24:], f.durable)
	binary.LittleEndian.PutUint32(h[32:], uint32(len(payload)))
	h[36] = byte(f.kind)
	binary.LittleEndian.PutUint64(h, checksum(salt, h[8:]))
	return b
}

// decodeFrame returns the head in h. It returns false if h is no head of a frame with this salt.
func decodeFrame(h []byte, salt uint64) (frame, bool) {
	if binary.LittleEndian.Uint64(h) != checksum(salt, h[8:headSize]) {
		return frame{}, false
	}
	return frame{
		sum:     binary.LittleEndian.Uint64(h[8:]),
		index:   binary.LittleEndian.Uint64(h[16:]),
		durable: binary.LittleEndian.Uint64(h[24:]),
		length:  binary.LittleEndian.Uint32(h[32:]),
		kind:    kind(h[36]),
	}, true
}
