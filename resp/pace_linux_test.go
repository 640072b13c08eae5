package resp

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

func TestAnAllowanceIsFreeAndComesBack(t *testing.T) {
	a, now := new(allowance), time.Unix(1e9, 0)
	want := func(n int, covered bool) {
		t.Helper()
		if a.covers(n, now) != covered {
			t.Errorf("%d bytes are covered: %v", n, !covered)
		}
	}
	want(freeBytes/2, true)
	want(freeBytes/2, true)
	want(1<<30, false) // and are not taken off
	want(bigRead, false)
	now = now.Add(bigRead * time.Second / freePerSecond)
	want(bigRead, true)
	want(bigRead, false)
	now = now.Add(time.Hour)
	want(freeBytes, true)
	want(bigRead, false)
}

// paced is a client that is read, in pieces, as soon as it may be.
type paced struct {
	sock
	read int
}

func newPaced() *paced { return &paced{sock: sock{task: new(task)}} }

func (c *paced) mayBeRead() bool {
	if c.held.Load() {
		return false
	}
	c.task.state.Store(running)
	return true
}

func TestAPaceIsKeptByAllTogetherAndInTurn(t *testing.T) {
	const piece = 64 << 10
	for _, c := range []struct {
		name    string
		clients int
		sent    float64 // by each, as a part of the rate
		held    bool
	}{
		{"one, slower", 1, 0.5, false},
		{"one, as fast as is read", 1, 1, false},
		{"one, faster", 1, 4, true},
		{"many, slower together", 10, 0.05, false},
		{"many, each of them slower", 10, 0.5, true},
		{"many, much faster", 10, 1000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &pace{perSecond: 100 << 20}
				rate := float64(p.perSecond)
				every := max(20*time.Microsecond, time.Duration(piece/(c.sent*rate)*float64(time.Second)))
				began := time.Now()
				var mu sync.Mutex
				var held, most int
				least, total := math.MaxInt, 0
				var all sync.WaitGroup
				for i := range c.clients {
					client := newPaced()
					all.Go(func() {
						time.Sleep(every * time.Duration(i) / time.Duration(c.clients)) // not all at once
						for time.Since(began) < time.Second {
							if !client.mayBeRead() {
								mu.Lock()
								held++
								mu.Unlock()
								time.Sleep(20 * time.Microsecond)
								continue
							}
							time.Sleep(every)
							client.read += piece
							p.pay(&client.sock, piece, time.Now())
						}
						mu.Lock()
						most, least, total = max(most, client.read), min(least, client.read), total+client.read
						mu.Unlock()
					})
				}
				all.Wait()
				if got, limit := float64(total), rate*(time.Second+mostAhead).Seconds()+float64((1+c.clients)*piece); got > limit {
					t.Errorf("%.0f bytes were read in a second, at most %.0f are to be", got, limit)
				}
				if got, limit := float64(total), min(c.sent*float64(c.clients), 1)*rate*0.95; got < limit {
					t.Errorf("%.0f bytes were read in a second, at least %.0f could be", got, limit)
				}
				if most-least > piece {
					t.Errorf("one was read %d bytes, another one %d", most, least)
				}
				if (held > 0) != c.held {
					t.Errorf("%d times somebody was held", held)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if len(p.line) > 0 {
					t.Errorf("%d are held for ever", len(p.line))
				}
			})
		})
	}
}

func TestWhoIsLetGoIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pace{perSecond: 1 << 20}
		began := time.Now()
		var line [3]*paced
		for i := range line {
			line[i] = newPaced()
			p.pay(&line[i].sock, 1<<20, began)
		}
		for i, c := range line {
			if i > 0 && c.mayBeRead() {
				t.Errorf("the one of place %d may be read at once", i)
			}
			time.Sleep(time.Until(began.Add(time.Duration(i)*time.Second + time.Millisecond)))
			synctest.Wait()
			if told := c.task.state.Load() == signaled; told != (i > 0) {
				t.Errorf("the one of place %d is told: %v", i, told)
			}
			if !c.mayBeRead() {
				t.Errorf("the one of place %d waits for longer than those before it pay", i)
			}
		}
	})
}

// All of it is read and answered, but not too fast, however many send it.
func TestWhoSendsMuchIsReadAtThePace(t *testing.T) {
	const clients, each, rate = 4, 40, 16 << 20
	s, dial := polled(t, Config{}, &script{})
	long := bulk("PING", strings.Repeat("x", 50<<10))
	var all sync.WaitGroup
	var began time.Time
	for i := range clients {
		cl := dial()
		cl.call("PING\r\n", "+PONG\r\n")
		if i == 0 {
			p := s.Conns()[0].sock.poller.pace
			p.mu.Lock()
			p.perSecond = rate
			p.mu.Unlock()
			began = time.Now()
		}
		all.Go(func() {
			for range each {
				if _, err := io.WriteString(cl, long); err != nil {
					t.Error(err)
					return
				}
			}
		})
		all.Go(func() {
			if _, err := io.CopyN(io.Discard, cl, int64(each*len("+PONG\r\n"))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	took := time.Since(began)
	free := clients * (freeBytes + took.Seconds()*freePerSecond)
	// A little may come in pieces that do not count.
	if least := (clients*each*float64(len(long))*0.8 - free) / rate; took.Seconds() < least {
		t.Errorf("it was read in %v, sooner than in %.2f s", took, least)
	}
}

// heldUp returns a client that sends 100 long commands to a server whose pace lets nobody go before goOn, and the server's end of it,
// which is held.
func heldUp(t *testing.T, s *Server, dial func() *client) (*client, *Conn) {
	t.Helper()
	cl := dial()
	cl.call("PING\r\n", "+PONG\r\n")
	conn := s.Conns()[0]
	conn.sock.poller.pace.set(bucket{time.Now().Add(time.Hour)})
	go func() { _, _ = io.WriteString(cl, strings.Repeat(bulk("PING", strings.Repeat("x", 50<<10)), 100)) }()
	within10s(t, "it is not held", conn.sock.held.Load)
	return cl, conn
}

func within10s(t *testing.T, not string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 10*time.Second {
			t.Fatal(not)
		}
	}
}

func (p *pace) set(paid bucket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paid = paid
}

// forgive lets all go who stand in the line.
func (p *pace) forgive() {
	p.set(bucket{})
	p.goOn()
}

func (p *pace) debts() []debt {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.line)
}

func TestOnlyWhoSendsMuchIsHeld(t *testing.T) {
	s, dial := polled(t, Config{}, &script{})
	held, conn := heldUp(t, s, dial)
	other := dial()
	for range 10 {
		other.call("PING\r\n", "+PONG\r\n")
	}
	other.call(bulk("PING", strings.Repeat("x", freeBytes/2)), "+PONG\r\n") // is its own
	if !conn.sock.held.Load() {
		t.Error("it is held no more")
	}
	conn.sock.poller.pace.forgive()
	held.expect(strings.Repeat("+PONG\r\n", 100))
	held.call("PING\r\n", "+PONG\r\n")
}

// Who has sent a long command has more room to be read into, but not more of a turn.
func TestATurnIsAsLongForAll(t *testing.T) {
	s, dial := polled(t, Config{}, &script{})
	cl := dial()
	long := fmt.Sprintf("*17\r\n$4\r\nPING\r\n%s", strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", 60<<10, strings.Repeat("x", 60<<10)), 16))
	cl.call(long, "+PONG\r\n")
	p := s.Conns()[0].sock.poller.pace
	holds := bucket{time.Now().Add(time.Hour)}
	p.set(holds)
	const more = 10
	go func() { _, _ = io.WriteString(cl, strings.Repeat(long, more)) }()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		cl.expect(strings.Repeat("+PONG\r\n", more))
	}()
	most := 0
	for {
		select {
		case <-answered:
			if most != batchBuffer {
				t.Errorf("%d bytes were read at once, at most", most)
			}
			return
		default:
		}
		for _, d := range p.debts() {
			most = max(most, d.bytes)
			p.forgive()
			p.set(holds)
		}
	}
}

func TestWhoIsHeldMayBeClosedAndShutDown(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Server, *Conn){
		"closed":    func(_ *testing.T, _ *Server, c *Conn) { c.Close() },
		"shut down": func(t *testing.T, s *Server, _ *Conn) { stopServer(t, s) },
	} {
		t.Run(name, func(t *testing.T) {
			s, dial := polled(t, Config{}, &script{})
			cl, conn := heldUp(t, s, dial)
			p, gone := conn.sock.poller.pace, weak.Make(conn)
			end(t, s, conn)
			_, _ = io.Copy(io.Discard, cl) // it is reset, as not all was read
			conn = nil
			within10s(t, "what was read of it keeps its memory", func() bool { runtime.GC(); return gone.Value() == nil })
			if n := len(p.debts()); n != 1 {
				t.Errorf("%d stand in the line, before what was read of it is paid", n)
			}
			p.forgive()
			if n := len(p.debts()); n != 0 {
				t.Errorf("%d stand in the line", n)
			}
		})
	}
}
