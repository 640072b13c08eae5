package simulation

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// happening is a reply or push that a client received, or a step in the end of its connection.
type happening struct {
	at    time.Duration
	wire  *wire
	what  happened
	value any // of heard: the reply or push
}

type happened uint8

const (
	heard   happened = iota // the client received a whole reply or push
	noticed                 // a read or a write showed the server that the client has left
	closed                  // the server closed its end
	ended                   // the client has read everything that the server sent
	died                    // the store has failed; wire is nil
)

type inbox struct {
	mu   sync.Mutex
	list []happening
}

func (b *inbox) add(h happening) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, h)
}

// take returns the happenings in order of time. It sorts replies and pushes of one instant by wire.
// Otherwise the first violation could depend on the fastest goroutine.
func (b *inbox) take() []happening {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := b.list
	b.list = nil
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[i].what == heard && list[j].what == heard && list[i].at == list[j].at {
			j++
		}
		slices.SortStableFunc(list[i:j], func(a, b happening) int { return cmp.Compare(a.wire.id, b.wire.id) })
		i = j
	}
	return list
}

// unread is how long the server tries to send to a client that reads nothing.
const unread = 10 * time.Second

// serverEnd is the server's end of a wire. It notes when the server learns that the client has
// left.
type serverEnd struct {
	net.Conn
	wire *wire
	once sync.Once
	// When the client last read a part of the present write, or when the write began. Zero = there
	// is no write.
	took time.Time
}

func (e *serverEnd) Read(p []byte) (int, error) {
	n, err := e.Conn.Read(p)
	e.note(err)
	return n, err
}

// Write notes when the server must disconnect a client that does not read. One missed write
// deadline does not suffice. The server tries again until the client has read nothing for the time
// unread.
func (e *serverEnd) Write(p []byte) (int, error) {
	if e.took.IsZero() {
		e.took = time.Now()
	}
	n, err := e.Conn.Write(p)
	switch {
	case err == nil:
		e.took = time.Time{}
	case !errors.Is(err, os.ErrDeadlineExceeded):
		e.note(err)
	case n > 0:
		e.took = time.Now()
	case time.Since(e.took) >= unread:
		e.wire.post(noticed, nil)
	}
	return n, err
}

// SetWriteDeadline notes its own error too. Unlike on a socket, it fails if the client has left,
// and the server then writes nothing.
func (e *serverEnd) SetWriteDeadline(t time.Time) error {
	err := e.Conn.SetWriteDeadline(t)
	e.note(err)
	return err
}

func (e *serverEnd) note(err error) {
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		e.wire.post(noticed, nil)
	}
}

func (e *serverEnd) Close() error {
	e.once.Do(func() { e.wire.post(closed, nil) })
	return e.Conn.Close()
}

func (k *wire) post(what happened, value any) {
	k.w.inbox.add(happening{k.w.now(), k, what, value})
}

// read receives replies and pushes until the connection ends.
func (k *wire) read() {
	defer k.post(ended, nil)
	var p parser
	buf := make([]byte, 4096)
	for {
		if pause := k.pause(); pause != nil {
			<-pause
			continue
		}
		n, err := k.nc.Read(buf)
		p.in = append(p.in, buf[:n]...)
		for {
			v, ok, broken := p.next()
			if broken {
				k.post(heard, respError("not RESP: "+strconv.Quote(string(p.in))))
				k.nc.Close()
				return
			}
			if !ok {
				break
			}
			k.post(heard, v)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}

// pause returns a channel that is closed when a stalled client reads again; nil = the client reads
// now.
func (k *wire) pause() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.stalled
}

func (k *wire) stall() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stalled = make(chan struct{})
	k.nc.SetReadDeadline(time.Unix(1, 0)) // unblocks Read
}

func (k *wire) resume() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stalled != nil {
		close(k.stalled)
		k.stalled = nil
		k.nc.SetReadDeadline(time.Time{})
	}
}

// The values of RESP are string, int64, nil, []any (also for a map), respError and push.
type (
	respError string
	push      []any
)

type parser struct{ in []byte }

var errShort = errors.New("incomplete value")

// next returns the next value, if all its bytes have arrived.
func (p *parser) next() (v any, ok, broken bool) {
	r := &scanner{rest: p.in}
	v, err := r.value()
	switch {
	case err == nil:
		p.in = r.rest
		return v, true, false
	case errors.Is(err, errShort):
		return nil, false, false
	default:
		return nil, false, true
	}
}

type scanner struct{ rest []byte }

func (r *scanner) line() (string, error) {
	i := bytes.Index(r.rest, []byte("\r\n"))
	if i < 0 {
		return "", errShort
	}
	s := string(r.rest[:i])
	r.rest = r.rest[i+2:]
	return s, nil
}

func (r *scanner) value() (any, error) {
	s, err := r.line()
	if err != nil {
		return nil, err
	}
	if s == "" {
		return nil, io.ErrUnexpectedEOF
	}
	kind, arg := s[0], s[1:]
	switch kind {
	case '+':
		return arg, nil
	case '-':
		return respError(arg), nil
	case '_':
		return nil, nil
	}
	n, err := strconv.ParseInt(arg, 10, 64)
	if err != nil {
		return nil, err
	}
	switch kind {
	case ':':
		return n, nil
	case '$':
		if n < 0 {
			return nil, nil
		}
		if int64(len(r.rest)) < n+2 {
			return nil, errShort
		}
		v := string(r.rest[:n])
		r.rest = r.rest[n+2:]
		return v, nil
	case '*', '%', '>':
		if n < 0 {
			return nil, nil
		}
		if kind == '%' {
			n *= 2
		}
		list := make([]any, 0, n)
		for range n {
			v, err := r.value()
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		if kind == '>' {
			return push(list), nil
		}
		return list, nil
	}
	return nil, io.ErrUnexpectedEOF
}

// record converts a reply of names and values to a record; nil = the reply is something else.
func record(v any) simbatest.Record {
	r, _ := simbatest.ToRecord(v, nil)
	return r
}

func command(words ...string) []byte {
	b := []byte("*" + strconv.Itoa(len(words)) + "\r\n")
	for _, s := range words {
		b = append(b, "$"+strconv.Itoa(len(s))+"\r\n"+s+"\r\n"...)
	}
	return b
}
