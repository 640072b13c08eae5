package resp

import (
	"bytes"
	"errors"
	"fmt"
)

const (
	minBuffer   = 2 << 10  // buffer of an idle connection; holds a pipeline of 16 usual commands
	batchBuffer = 64 << 10 // a buffer grows up to this size for longer batches
	headerSize  = 32       // bound of the bytes around an argument: "$", a length, two line ends
	maxDigits   = 19       // digits of a 64-bit number
)

// tlsHandshake are the first bytes of a TLS connection in all versions (RFC 8446, 5.1). No command
// begins with them.
var tlsHandshake = []byte{0x16, 0x03}

// protocolError is the error for a client that breaks the protocol or a limit. The server sends it
// and closes the connection. The texts are Redis' own, except errPlainPort.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// errPlainPort is sent in plain text. TLS clients then report that the port has no TLS.
const errPlainPort = protocolError("this port does not speak TLS")

// The errors of a reader that the server does not send to the client.
var (
	errCrossProtocol = errors.New("the client speaks HTTP: closed to prevent cross-protocol scripting")
	errFlooded       = errors.New("the client sent more bytes during a blocked command than one command may have")
)

// input is the reader of a connection.
type input struct {
	*reader
	checks bool // the read deadline is set in time to check a grown buffer
}

// reader splits the bytes of one connection into commands. It scans each byte once, even if the
// bytes arrive in small pieces.
//
//	        start        pos   seen    end
//	buf: …… │*3..$4..PING│$100…│…………   │ free
//	          └ spans ┘
type reader struct {
	limits Limits
	buf    []byte
	start  int  // start of the command being read; returned arguments lie before it
	pos    int  // start of the unparsed bytes
	seen   int  // there is no line end in buf[pos:seen]
	end    int  // start of the free bytes
	filled bool // the last feed filled the buffer, so the socket probably has more bytes
	peak   int  // largest number of buffered bytes since the last shrink

	missing int    // arguments that the command still lacks
	bulk    int    // length of the next argument; -1 = not read yet
	size    int    // bytes of the command's arguments so far
	spans   []span // the command's arguments so far
	args    [][]byte
}

// span has the offsets of an argument from reader.start, because the buffer may move until the
// command is complete.
type span struct{ from, to int }

func newReader(l Limits) *reader { return &reader{limits: l, bulk: -1} }

func (r *reader) buffered() int { return r.end - r.start }

// grown reports whether the buffer is larger than that of an idle connection.
func (r *reader) grown() bool { return len(r.buf) > minBuffer }

// shrink releases a grown buffer if it is empty and was mostly unused since the last call.
func (r *reader) shrink() {
	if r.grown() && r.buffered() == 0 && r.peak <= len(r.buf)/4 {
		*r = *newReader(r.limits)
	}
	r.peak = 0
}

// space returns free room in the buffer for bytes that arrive. It invalidates the arguments that
// r.next returned.
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

// extend is like space, but the arguments that r.next returned stay valid.
func (r *reader) extend() ([]byte, error) {
	return r.extendTo(r.limits.Command + r.limits.Args*headerSize + r.limits.Inline)
}

func (r *reader) extendUnauth() ([]byte, error) {
	return r.extendTo(unauthArgs*(unauthArg+headerSize) + r.limits.Inline)
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

// move copies the used bytes to the beginning of buf, which becomes the buffer.
func (r *reader) move(buf []byte) {
	copy(buf, r.buf[r.start:r.end])
	r.pos -= r.start
	r.seen -= r.start
	r.end -= r.start
	r.start = 0
	r.buf = buf
}

// feed adds n bytes. The caller has read them into the room that r.space or r.extend returned.
func (r *reader) feed(n int) {
	r.end += n
	r.filled = r.end == len(r.buf)
	r.peak = max(r.peak, r.buffered())
}

// next returns the arguments of the next complete command, or nil if there is none. The arguments
// are valid until the next call of space. If unauth is true, the limits before authentication
// apply. The error is a protocolError or errCrossProtocol. After an error the reader must not be
// used.
func (r *reader) next(unauth bool) ([][]byte, error) {
	for r.pos < r.end {
		if r.missing > 0 {
			if done, err := r.multibulk(unauth); err != nil || !done {
				return nil, err
			}
			return r.take()
		}
		if bytes.HasPrefix(r.buf[r.pos:r.end], tlsHandshake) {
			// A TLS handshake may have no line end. Without this check, client and server would
			// both wait.
			return nil, errPlainPort
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
			r.start = r.pos // skips an empty command
		}
	}
	return nil, nil
}

// line returns the next line with its '\n' and moves pos past it. ok is false if the line is not
// complete.
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

// begin starts a command from its first line, "*<arguments>\r\n". A count of 0 or less is an empty
// command.
func (r *reader) begin(line []byte, unauth bool) error {
	n, ok := parseLength(line)
	switch {
	case !ok || n > r.limits.Args:
		return protocolError("invalid multibulk length")
	case unauth && n > unauthArgs:
		return protocolError("unauthenticated multibulk length")
	}
	r.missing = max(n, 0)
	return nil
}

// multibulk reads arguments. done means that the command is complete.
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
		// Redis skips these two bytes without a check. But if they are not a line end, the length
		// was wrong, and the reader would take the next bytes for a command.
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

// mayBeLong reports whether the current command may have an argument longer than Limits.Arg.
func (r *reader) mayBeLong() bool {
	if r.limits.MayBeLong == nil || len(r.spans) == 0 {
		return false
	}
	name := r.spans[0]
	return r.limits.MayBeLong(r.buf[r.start+name.from : r.start+name.to])
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
	case unauth && n > unauthArg:
		return false, protocolError("unauthenticated bulk length")
	}
	r.bulk = n
	r.size += n
	return true, nil
}

// take ends the command and returns its arguments. It returns errCrossProtocol for HTTP, because a
// web page can make a browser send any bytes after "POST".
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

// parseLength reads the number in "*<number>\r\n" or "$<number>\r\n" by the rules of Redis'
// string2ll: no plus sign, no spaces, no leading zero, no overflow.
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
	if len(digits) == 0 || digits[0] == '0' || len(digits) > maxDigits {
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
		return -int(min(v, most)), true // callers only compare it with 0
	}
	return int(v), true
}
