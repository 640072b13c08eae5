package resp

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestPublishBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{})
		p := &s.pushers
		p.start(0)
		nc, other := net.Pipe()
		defer other.Close()
		publisher := newConn(s, nc)
		// publish adds n receivers. It closes the returned channel when waitForPushers returns.
		publish := func(n int) (over chan struct{}) {
			over = make(chan struct{})
			publisher.AddReceivers(n)
			go func() { publisher.waitForPushers(); close(over) }()
			synctest.Wait()
			return over
		}
		pending := make([]Conn, 2*pushBatch+1)
		begin := time.Now()
		for i := range pending {
			if i == pushBatch {
				<-publish(manyPushes) // returns at once, because few connections wait for a pusher
			}
			p.schedule(&pending[i])
		}
		<-publish(manyPushes - 1)
		if d := time.Since(begin); d != 0 {
			t.Errorf("the publisher has waited %v so far, want 0", d)
		}
		over := publish(1)
		p.take(nil)
		synctest.Wait()
		select {
		case <-over:
			t.Error("the wait ended while many connections waited for a pusher")
		default:
		}
		p.take(nil)
		<-over
		if d := time.Since(begin); d != 0 {
			t.Errorf("the wait ended %v after few connections were left, want at once", d)
		}
		for i := range pending {
			p.schedule(&pending[i])
		}
		<-publish(manyPushes)
		if d := time.Since(begin); d != publishWait {
			t.Errorf("the wait for pushers that send nothing lasted %v, want %v", d, publishWait)
		}
	})
}

// fallBehind queues many connections. No pusher runs, so the connections stay queued until catchUp.
func (p *pushers) fallBehind() {
	pending := make([]Conn, 2*pushBatch+1)
	for i := range pending {
		p.schedule(&pending[i])
	}
}

func (p *pushers) catchUp() {
	for len(p.take(nil)) > 0 {
	}
}

func (p *pushers) awaited() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.caughtUp != nil
}

// publish is a PUBLISH with so many receivers that the connection waits for the pushers.
func publish(c *Conn, _ [][]byte) {
	c.Reply().Simple("SENT")
	c.AddReceivers(manyPushes)
}

func TestPublishBackpressureSendsRepliesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: map[string]func(*Conn, [][]byte){"PUBLISH": publish}})
		s.pushers.start(0)
		s.pushers.fallBehind()
		cl := dial(t, s)
		begin := time.Now()
		cl.send("PUBLISH\r\nPING\r\n")
		cl.expect("+SENT\r\n")
		if d := time.Since(begin); d != 0 {
			t.Errorf("replies to earlier commands came after %v, want at once", d)
		}
		cl.expectSilence()
		s.pushers.catchUp()
		cl.expect("+PONG\r\n")
		if d := time.Since(begin); d >= publishWait {
			t.Errorf("the publisher waited %v although the pushers had caught up", d)
		}
	})
}

// OTHER ends the wait of PUBLISH. On a slow machine the wait may time out before OTHER runs, so the
// test has several tries.
func TestPublishBackpressureDoesNotBlockOtherClients(t *testing.T) {
	order := make(chan string, 2)
	s, dial := polled(t, Config{}, &script{commands: map[string]func(*Conn, [][]byte){
		"PUBLISH": publish,
		"NEXT": func(c *Conn, _ [][]byte) {
			order <- "next"
			c.Reply().Simple("NEXT")
		},
		"OTHER": func(c *Conn, _ [][]byte) {
			order <- "other"
			c.server.pushers.catchUp()
			c.Reply().Simple("OTHER")
		},
	}})
	cl, other := dial(), dial()
	cl.call("PING\r\n", "+PONG\r\n") // the poller has adopted the connection
	other.call("PING\r\n", "+PONG\r\n")
	s.pushers.stop()
	s.pushers.start(0)
	for range 20 {
		s.pushers.fallBehind()
		cl.send("PUBLISH\r\nNEXT\r\n")
		cl.expect("+SENT\r\n")
		for !s.pushers.awaited() && len(order) == 0 { // until the publisher waits, or has timed out
			other.call("PING\r\n", "+PONG\r\n")
		}
		other.call("OTHER\r\n", "+OTHER\r\n")
		cl.expect("+NEXT\r\n")
		first := <-order
		<-order
		if first == "other" {
			return
		}
	}
	t.Error("the server served no other client while the publisher waited")
}
