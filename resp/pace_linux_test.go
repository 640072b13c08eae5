package resp

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestAPaceIsKept(t *testing.T) {
	const piece = 64 << 10
	for _, c := range []struct {
		name  string
		sent  float64 // as a part of the rate
		rests bool
	}{
		{"slower", 0.5, false},
		{"as fast as is read", 1, false},
		{"faster", 4, true},
		{"much faster", 1000, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPace()
			rate := float64(p.perSecond)
			began := time.Unix(1e9, 0)
			now := began
			var read, rested float64
			for now.Sub(began) < time.Second {
				now = now.Add(time.Duration(piece / (c.sent * rate) * float64(time.Second)))
				p.took(piece, now)
				read += piece
				rest := p.rest(now)
				now = now.Add(rest)
				rested += rest.Seconds()
			}
			if most := rate*now.Sub(began).Seconds() + rate*mostAhead.Seconds() + piece; read > most {
				t.Errorf("%.0f bytes in %v, at most %.0f are to be read", read, now.Sub(began), most)
			}
			if least := min(c.sent, 1) * rate * 0.95; read < least {
				t.Errorf("%.0f bytes in %v, at least %.0f have come", read, now.Sub(began), least)
			}
			if (rested > 0) != c.rests {
				t.Errorf("rested for %v s", rested)
			}
		})
	}
}

func TestTheBucketOfAPaceIsEmptyInTheEnd(t *testing.T) {
	p, now := newPace(), time.Unix(1e9, 0)
	p.took(p.perSecond, now) // a second's
	if got := p.rest(now); got != time.Second {
		t.Errorf("rests for %v after a second's bytes", got)
	}
	if got := p.rest(now.Add(time.Second - mostAhead)); got != 0 {
		t.Errorf("rests for %v when it is ahead by what it may be", got)
	}
	p.took(1, now.Add(time.Hour))
	if got := p.rest(now.Add(time.Hour)); got != 0 {
		t.Errorf("rests for %v after an hour's silence", got)
	}
}

// All of it is read and answered, but not too fast, however many send it.
func TestWhoSendsMuchIsReadAtThePace(t *testing.T) {
	const clients = 4
	_, dial := polled(t, Config{}, &script{})
	long := []byte(bulk("PING", strings.Repeat("x", 50<<10)))
	each := newPace().perSecond/2/clients/len(long) + 1
	began := time.Now()
	var all sync.WaitGroup
	for range clients {
		cl := dial()
		all.Go(func() {
			for range each {
				if _, err := cl.Write(long); err != nil {
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
	// A little may come in pieces that do not count.
	if took, least := time.Since(began), 2*time.Second/5; took < least {
		t.Errorf("%d bytes were read in %v, sooner than in %v", clients*each*len(long), took, least)
	}
}

// Who sends little does not rest, whatever the others send.
func TestOnlyWhoSendsMuchRests(t *testing.T) {
	s, dial := polled(t, Config{}, &script{})
	cl := dial()
	cl.call("PING\r\n", "+PONG\r\n")
	p := s.Conns()[0].sock.poller.pace
	p.took(p.perSecond, time.Now().Add(time.Hour)) // the bucket is full for longer than the test may last
	for range 10 {
		cl.call("PING\r\n", "+PONG\r\n")
	}
}
