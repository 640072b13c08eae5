package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// wire is a connection that speaks RESP2. It needs little processor time, since the benchmarks
// measure servers, not client libraries. Only close is safe for concurrent use.
type wire struct {
	c      net.Conn
	r      *bufio.Reader
	fields [][]byte // of the last reply
	text   []byte   // the bytes of the fields
}

// dial connects to a server. After the time life, requests without a reply fail with
// os.ErrDeadlineExceeded.
func dial(addr string, life time.Duration) (*wire, error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	if err := c.SetDeadline(time.Now().Add(life)); err != nil {
		c.Close()
		return nil, err
	}
	return &wire{c: c, r: bufio.NewReaderSize(c, 4<<10)}, nil
}

func (w *wire) close() { w.c.Close() }

func frame(args ...string) []byte {
	b := fmt.Appendf(nil, "*%d\r\n", len(args))
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// ask sends a command and returns the reply. It returns an array as its elements, and any other
// reply as one element. The result is valid until the next call.
func (w *wire) ask(command []byte) ([][]byte, error) {
	if _, err := w.c.Write(command); err != nil {
		return nil, err
	}
	return w.receive()
}

// pipe sends command(0) to command(n-1) on a new connection, in pipelines of a thousand. It fails
// if a pipeline takes longer than patience, or a reply is an error.
func pipe(addr string, n int, command func(i int) []byte, patience time.Duration) error {
	w, err := dial(addr, patience)
	if err != nil {
		return err
	}
	defer w.close()
	const batch = 1000
	var commands []byte
	for from := 0; from < n; from += batch {
		commands = commands[:0]
		to := min(from+batch, n)
		for i := from; i < to; i++ {
			commands = append(commands, command(i)...)
		}
		if err := w.c.SetDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := w.c.Write(commands); err != nil {
			return err
		}
		for range to - from {
			if _, err := w.receive(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *wire) receive() ([][]byte, error) {
	w.fields, w.text = w.fields[:0], w.text[:0]
	if err := w.read(); err != nil {
		return nil, err
	}
	return w.fields, nil
}

func (w *wire) read() error {
	line, err := w.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	if len(line) < 3 {
		return fmt.Errorf("not a RESP reply: %q", line)
	}
	kind, rest := line[0], line[1:len(line)-2]
	switch kind {
	case '-':
		return errors.New(string(rest))
	case '+', ':':
		w.add(rest)
		return nil
	}
	n, err := strconv.Atoi(string(rest))
	if err != nil {
		return fmt.Errorf("not a RESP reply: %q", line)
	}
	switch kind {
	case '$':
		return w.bulk(n)
	case '*':
		for range n {
			if err := w.read(); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("not a RESP reply: %q", line)
}

func (w *wire) bulk(n int) error {
	if n < 0 {
		w.add(nil)
		return nil
	}
	b, err := w.r.Peek(n + 2)
	if err != nil {
		return err
	}
	w.add(b[:n])
	_, err = w.r.Discard(n + 2)
	return err
}

// add appends a copy of a field, since the reader reuses its buffer.
func (w *wire) add(b []byte) {
	from := len(w.text)
	w.text = append(w.text, b...) // if append moves text, earlier fields keep the old array
	w.fields = append(w.fields, w.text[from:])
}
