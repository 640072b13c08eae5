package resp

import (
	"bytes"
	"errors"
	"fmt"
)

const (
	minBuffer   = 2 << 10  // of a quiet connection: holds a pipeline of 16 usual commands
	batchBuffer = 64 << 10 // up to this, a buffer grows to take longer batches
	headerSize  = 32       // of an argument, at most: '$', up to 19 digits, two line ends
	maxDigits   = 19       // of a number of 64 bits
)

// tlsHandshake are the first bytes of a TLS connection, whatever its version, and of no command (RFC 8446, 5.1).
var tlsHandshake = []byte{0x16, 0x03}

// protocolError is what a client is told before it is cut: it does not speak RESP,
// or breaks a limit. The texts are Redis' own.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// errTLSHere is told in plain text: that is how a TLS client tells its user, too, that
// there is no TLS.
const errTLSHere = protocolError("this port does not speak TLS")

// The errors of a reader that have no text for the client.
var (
	errCrossProtocol = errors.New("this is HTTP: closed against cross-protocol scripting")
	errFlooded       = errors.New("more bytes sent during a blocked command than one command may have")
)

// reader cuts the bytes of one connection into commands. It is fed through space
// and feed, and asked by next until nothing complete is left; it remembers how far
// it came, so each byte is looked at once, however small the pieces.
//
//	        start        pos   seen    end
//	buf: …… │*3..$4..PING│$100…│…………   │ free
//	          └ spans ┘
type reader struct {
	limits Limits
	buf    []byte
	start  int  // the command being read begins here; arguments handed out lie before it
	pos    int  // what is not parsed yet begins here
	seen   int  // no line ends in buf[pos:seen]
	end    int  // what is free begins here
	filled bool // the last feed left nothing free: there is probably more to come
	peak   int  // most bytes buffered since the last shrink

	missing int    // arguments that the command still lacks
	bulk    int    // length of the next of them, -1: its header comes first
	size    int    // bytes of its arguments so far
	spans   []span // its arguments so far
	args    [][]byte
}

// span is an argument's place, from reader.start: the buffer may move until the
// command is complete.
type span struct{ from, to int }

func newReader(l Limits) *reader { return &reader{limits: l, bulk: -1} }

// buffered is how many bytes wait to become commands.
func (r *reader) buffered() int { return r.end - r.start }

// grown reports whether the buffer is larger than that of a quiet connection.
func (r *reader) grown() bool { return len(r.buf) > minBuffer }

// shrink gives a grown buffer back if nothing is in it and most of it went unused
// since the last call.
func (r *reader) shrink() {
	if r.grown() && r.buffered() == 0 && r.peak <= len(r.buf)/4 {
		*r = *newReader(r.limits)
	}
	r.peak = 0
}

// space returns where the next bytes go. It invalidates the arguments that next
// returned.
func (r *reader) space() ([]byte, error) {
	n := r.buffered()
	switch {
	case n == 0 && r.filled && len(r.buf) < batchBuffer:
		r.move(make([]byte, min(2*len(r.buf), batchBuffer)))
	case n == 0 || (r.end == len(r.buf) && r.start > 0 && n <= len(r.buf)/2):
		r.move(r.buf)
	}
	return r.extend()
}

// extend is space that leaves the arguments that next returned as they are.
func (r *reader) extend() ([]byte, error) {
	return r.extendTo(r.limits.Command + r.limits.Args*headerSize + r.limits.Inline)
}

// extendAnonymous is extend for a client that has yet to authenticate.
func (r *reader) extendAnonymous() ([]byte, error) {
	return r.extendTo(r.limits.UnauthArgs*(r.limits.UnauthArg+headerSize) + r.limits.Inline)
}

func (r *reader) extendTo(most int) ([]byte, error) {
	if r.end < len(r.buf) {
		return r.buf[r.end:], nil
	}
	n := r.buffered()
	if n >= most {
		return nil, errFlooded
	}
	r.move(make([]byte, min(max(2*n, minBuffer), most)))
	return r.buf[r.end:], nil
}

// move brings what is buffered to the beginning of buf, its own or a new one.
func (r *reader) move(buf []byte) {
	copy(buf, r.buf[r.start:r.end])
	r.pos -= r.start
	r.seen -= r.start
	r.end -= r.start
	r.start = 0
	r.buf = buf
}

// feed takes the first n bytes of space, or extend, as read.
func (r *reader) feed(n int) {
	r.end += n
	r.filled = r.end == len(r.buf)
	r.peak = max(r.peak, r.buffered())
}

// next returns the next complete command, nil when there is none, or a
// protocolError or errCrossProtocol, after which the reader is of no more use. The
// arguments are valid until space is called.
func (r *reader) next(unauth bool) ([][]byte, error) {
	for r.pos < r.end {
		if r.missing > 0 {
			if done, err := r.multibulk(unauth); err != nil || !done {
				return nil, err
			}
			return r.take()
		}
		if bytes.HasPrefix(r.buf[r.pos:r.end], tlsHandshake) {
			// The rest of what a TLS client sends first may hold no line end, and both would wait.
			return nil, errTLSHere
		}
		line, ok, err := r.line()
		if err != nil || !ok {
			return nil, err
		}
		if line[0] == '*' {
			err = r.begin(line, unauth)
		} else {
			err = r.inline(line, unauth)
		}
		if err != nil {
			return nil, err
		}
		if len(r.spans) > 0 {
			return r.take()
		}
		if r.missing == 0 {
			r.start = r.pos // an empty command: as if nothing had come
		}
	}
	return nil, nil
}

// line returns the next line with its '\n' and leaves pos behind it; ok is false
// if it is not complete.
func (r *reader) line() (line []byte, ok bool, err error) {
	i := bytes.IndexByte(r.buf[r.seen:r.end], '\n')
	length := r.end - r.pos
	if i >= 0 {
		length = r.seen + i - r.pos
	}
	if length > r.limits.Inline+len("\r") {
		switch {
		case r.missing > 0:
			return nil, false, protocolError("too big bulk count string")
		case r.buf[r.pos] == '*':
			return nil, false, protocolError("too big mbulk count string")
		default:
			return nil, false, protocolError("too big inline request")
		}
	}
	if i < 0 {
		r.seen = r.end
		return nil, false, nil
	}
	line = r.buf[r.pos : r.pos+length+1]
	r.skip(len(line))
	return line, true, nil
}

func (r *reader) skip(n int) {
	r.pos += n
	r.seen = r.pos
}

// begin starts a command from its first line, "*<arguments>\r\n". A count of 0 or
// less is an empty command.
func (r *reader) begin(line []byte, unauth bool) error {
	n, ok := parseLength(line)
	switch {
	case !ok || n > r.limits.Args:
		return protocolError("invalid multibulk length")
	case unauth && n > r.limits.UnauthArgs:
		return protocolError("unauthenticated multibulk length")
	}
	r.missing = max(n, 0)
	return nil
}

// multibulk reads arguments as far as the bytes go; done means all.
func (r *reader) multibulk(unauth bool) (done bool, err error) {
	for r.missing > 0 {
		if r.bulk < 0 {
			if ok, err := r.header(unauth); err != nil || !ok {
				return false, err
			}
		}
		if r.end-r.pos < r.bulk+len("\r\n") {
			return false, nil
		}
		// Redis skips these two bytes unseen. What stands there if they are no line
		// end would be taken for a command, so the length is taken for wrong.
		if r.buf[r.pos+r.bulk] != '\r' || r.buf[r.pos+r.bulk+1] != '\n' {
			return false, protocolError("invalid bulk length")
		}
		from := r.pos - r.start
		r.spans = append(r.spans, span{from, from + r.bulk})
		r.skip(r.bulk + len("\r\n"))
		r.bulk = -1
		r.missing--
	}
	return true, nil
}

// mayBeLong reports whether the command at hand may have an argument beyond the limit.
func (r *reader) mayBeLong() bool {
	if r.limits.Long == nil || len(r.spans) == 0 {
		return false
	}
	name := r.spans[0]
	return r.limits.Long(r.buf[r.start+name.from : r.start+name.to])
}

// header reads the line before an argument, "$<bytes>\r\n".
func (r *reader) header(unauth bool) (ok bool, err error) {
	line, ok, err := r.line()
	if err != nil || !ok {
		return false, err
	}
	if line[0] != '$' {
		return false, protocolError(fmt.Sprintf("expected '$', got '%s'", line[:1]))
	}
	n, ok := parseLength(line)
	switch {
	case !ok || n < 0 || n > r.limits.Arg && !r.mayBeLong() || n > r.limits.Command-r.size:
		return false, protocolError("invalid bulk length")
	case unauth && n > r.limits.UnauthArg:
		return false, protocolError("unauthenticated bulk length")
	}
	r.bulk = n
	r.size += n
	return true, nil
}

// take ends the command and returns its arguments, or errCrossProtocol: a browser
// can be made to send any bytes, an array too, behind its "POST".
func (r *reader) take() ([][]byte, error) {
	r.args = r.args[:0]
	for _, s := range r.spans {
		r.args = append(r.args, r.buf[r.start+s.from:r.start+s.to:r.start+s.to])
	}
	r.spans = r.spans[:0]
	r.size = 0
	r.start = r.pos
	if isHTTP(r.args[0]) {
		return nil, errCrossProtocol
	}
	return r.args, nil
}

func isHTTP(name []byte) bool {
	return bytes.EqualFold(name, []byte("POST")) || bytes.EqualFold(name, []byte("Host:"))
}

// parseLength reads the number in "*<number>\r\n" or "$<number>\r\n" by the rules
// of Redis' string2ll: no plus, no blanks, no needless zero, no overflow.
func parseLength(line []byte) (n int, ok bool) {
	if len(line) < len("*0\r\n") || line[len(line)-2] != '\r' {
		return 0, false
	}
	digits := line[1 : len(line)-2]
	if len(digits) == 1 && digits[0] == '0' {
		return 0, true
	}
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	if len(digits) == 0 || digits[0] == '0' {
		return 0, false
	}
	if len(digits) > maxDigits {
		return 0, false
	}
	const most = 1<<31 - 1
	var v uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0')
	}
	switch {
	case negative && v > 1<<63, !negative && v > most:
		return 0, false
	case negative:
		return -int(min(v, most)), true // all that counts is that it is below 0
	}
	return int(v), true
}
