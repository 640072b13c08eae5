package resp

import (
	"math"
	"slices"
	"strconv"

	"github.com/tidwall/redcon"
)

// Writer builds replies in RESP2 or RESP3. Each method that writes appends one frame, or the header
// of an aggregate whose elements follow. In RESP2 the Writer replaces the types that only RESP3
// has, as Redis does. The zero Writer is empty and uses RESP2. A Writer is not safe for concurrent
// use.
type Writer struct {
	buf   []byte
	resp3 bool
}

// Len returns the number of bytes written.
func (w *Writer) Len() int { return len(w.buf) }

// Bytes returns the bytes written. They are valid until the next call of a method that writes.
func (w *Writer) Bytes() []byte { return w.buf }

// Truncate keeps the first n bytes, which must be whole frames.
func (w *Writer) Truncate(n int) { w.buf = w.buf[:n] }

// Grow makes room for n more bytes, to avoid copies while a large reply grows.
func (w *Writer) Grow(n int) { w.buf = slices.Grow(w.buf, n) }

// Proto returns the version of RESP, 2 or 3.
func (w *Writer) Proto() int {
	if w.resp3 {
		return 3
	}
	return 2
}

// SetProto sets the version of RESP for later frames: 3 for RESP3, any other number for RESP2.
func (w *Writer) SetProto(version int) { w.resp3 = version == 3 }

// Simple writes a simple string. Line ends become spaces.
func (w *Writer) Simple(s string) { w.buf = redcon.AppendString(w.buf, s) }

// Error writes an error. msg begins with its code, as in "ERR syntax error". Line ends become
// spaces.
func (w *Writer) Error(msg string) { w.buf = redcon.AppendError(w.buf, msg) }

// Int writes an integer.
func (w *Writer) Int(n int64) { w.buf = redcon.AppendInt(w.buf, n) }

// Bulk writes a bulk string. nil is an empty string, not null.
func (w *Writer) Bulk(b []byte) { w.buf = redcon.AppendBulk(w.buf, b) }

// BulkString writes a bulk string.
func (w *Writer) BulkString(s string) { w.buf = redcon.AppendBulkString(w.buf, s) }

// Null writes null; a null bulk string in RESP2.
func (w *Writer) Null() {
	if w.resp3 {
		w.buf = append(w.buf, "_\r\n"...)
		return
	}
	w.buf = redcon.AppendNull(w.buf)
}

// Array begins an array of n elements.
func (w *Writer) Array(n int) { w.buf = redcon.AppendArray(w.buf, n) }

// Map begins a map of n keys, each followed by its value; a flat array in RESP2.
func (w *Writer) Map(n int) { w.aggregate('%', n, 2*n) }

// MapOf writes a map of pairs.
func (w *Writer) MapOf(pairs ...any) {
	w.Map(len(pairs) / 2)
	w.Pairs(pairs...)
}

// Pairs writes the pairs of a map: keys, each followed by its value. Keys are strings. A value is a
// string or an int64; for a value of another type Pairs panics.
func (w *Writer) Pairs(pairs ...any) {
	for _, p := range pairs {
		if s, ok := p.(string); ok {
			w.BulkString(s)
		} else {
			w.Int(p.(int64))
		}
	}
}

// Set begins a set of n elements; an array in RESP2.
func (w *Writer) Set(n int) { w.aggregate('~', n, n) }

// Push begins an out-of-band push of n elements; an array in RESP2.
func (w *Writer) Push(n int) { w.aggregate('>', n, n) }

// aggregate begins an aggregate that only RESP3 has. In RESP2 it is an array of flat elements.
func (w *Writer) aggregate(kind byte, n, flat int) {
	if w.resp3 {
		w.header(kind, n)
	} else {
		w.Array(flat)
	}
}

// Double writes a number with 17 significant digits, as C's %.17g does; a bulk string of the same
// digits in RESP2.
func (w *Writer) Double(f float64) {
	var digits [32]byte
	d := AppendDouble(digits[:0], f, 17)
	if !w.resp3 {
		w.Bulk(d)
		return
	}
	w.buf = append(w.buf, ',')
	w.buf = append(w.buf, d...)
	w.buf = append(w.buf, '\r', '\n')
}

// AppendDouble appends f as C's %g prints it, with the given number of significant digits.
func AppendDouble(b []byte, f float64, digits int) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case math.IsNaN(f) && math.Signbit(f):
		return append(b, "-nan"...)
	case math.IsNaN(f):
		return append(b, "nan"...)
	}
	return strconv.AppendFloat(b, f, 'g', digits, 64)
}

// Verbatim writes text with its format, three letters such as "txt"; a bulk string of the text in
// RESP2.
func (w *Writer) Verbatim(format, text string) {
	if !w.resp3 {
		w.BulkString(text)
		return
	}
	w.header('=', len(format)+1+len(text))
	w.buf = append(w.buf, format...)
	w.buf = append(w.buf, ':')
	w.buf = append(w.buf, text...)
	w.buf = append(w.buf, '\r', '\n')
}

// reset empties w. If the capacity of the buffer is larger than limit bytes, reset releases the
// buffer.
func (w *Writer) reset(limit int) {
	if cap(w.buf) > limit {
		w.buf = nil
	}
	w.buf = w.buf[:0]
}

func (w *Writer) header(kind byte, n int) {
	w.buf = append(w.buf, kind)
	w.buf = strconv.AppendInt(w.buf, int64(n), 10)
	w.buf = append(w.buf, '\r', '\n')
}
