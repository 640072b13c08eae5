package abuse

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/simba-resp/simba-resp/tests/simbatest"
)

// raw is a client's connection that can send any bytes, and need not read.
type raw struct {
	*net.TCPConn
	in *bufio.Reader
}

// dialRaw connects. One late deadline limits all reads and writes.
func dialRaw(addr string) (*raw, error) {
	nc, err := net.DialTimeout("tcp", addr, simbatest.Patience)
	if err != nil {
		return nil, err
	}
	if err := nc.SetDeadline(time.Now().Add(2 * simbatest.Patience)); err != nil {
		return nil, err
	}
	return &raw{nc.(*net.TCPConn), bufio.NewReaderSize(nc, 512)}, nil
}

func (v *victim) raw() *raw {
	v.t.Helper()
	return v.raws(1)[0]
}

// raws opens n connections, and closes them when the test ends.
func (v *victim) raws(n int) []*raw {
	v.t.Helper()
	v.dialed += n
	conns := make([]*raw, n)
	errs := v.each(n, func(i int) (err error) {
		conns[i], err = dialRaw(v.addr)
		return err
	})
	v.t.Cleanup(func() { hangUp(conns) })
	if errs != nil {
		v.t.Fatal(errs)
	}
	return conns
}

func hangUp(conns []*raw) {
	for _, c := range conns {
		if c != nil {
			c.Close()
		}
	}
}

// each calls do(0) to do(n-1), 32 of them at a time, and returns the first error.
func (v *victim) each(n int, do func(i int) error) error {
	var wg sync.WaitGroup
	var once sync.Once
	var first error
	next := make(chan int)
	for range 32 {
		wg.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					once.Do(func() { first = err })
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	return first
}

func (c *raw) send(s string) error {
	_, err := io.WriteString(c, s)
	return err
}

func (c *raw) line() (string, error) {
	s, err := c.in.ReadString('\n')
	return strings.TrimSuffix(s, "\r\n"), err
}

func (c *raw) ask(s string) (string, error) {
	if err := c.send(s); err != nil {
		return "", err
	}
	return c.line()
}

func (c *raw) record() (map[string]string, error) {
	head, err := c.line()
	if err != nil {
		return nil, err
	}
	var fields int
	if _, err := fmt.Sscanf(head, "*%d", &fields); err != nil {
		return nil, fmt.Errorf("the reply is %q, want a record", head)
	}
	r := make(map[string]string)
	for range fields / 2 {
		key, err := c.scalar()
		if err != nil {
			return nil, err
		}
		if r[key], err = c.scalar(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (c *raw) scalar() (string, error) {
	head, err := c.line()
	if err != nil || head == "" || head[0] != '$' {
		return strings.TrimPrefix(head, ":"), err
	}
	return c.line()
}

func words(args ...any) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		s := fmt.Sprint(a)
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(s), s)
	}
	return b.String()
}

// reset closes the connection with a TCP reset, so that the kernel keeps no state of it.
func (c *raw) reset() {
	_ = c.SetLinger(0) // fails only on a closed connection
	c.Close()
}
