package resp

import (
	"testing"
	"testing/synctest"
	"time"
)

// fallBehind makes many pushers wait for a slot, until catchUp.
func (p *pushers) fallBehind() {
	for range cap(p.slots) {
		p.enter()
	}
	p.count(2 * fewPushers)
}

func (p *pushers) catchUp() {
	p.count(-2 * fewPushers)
	for range cap(p.slots) {
		p.leave()
	}
}

// publish is a PUBLISH with so many receivers that the connection waits for the pushers.
func publish(c *Conn, _ [][]byte) {
	c.Reply().Simple("SENT")
	c.AddReceivers(manyPushes)
}

func TestAPublisherWithManyReceiversWaitsForThePushers(t *testing.T) {
	onEachTransport(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: map[string]func(*Conn, [][]byte){
			"PUBLISH": publish,
			"FEWER":   func(c *Conn, _ [][]byte) { c.Reply().Simple("SENT"); c.AddReceivers(manyPushes - 1) },
		}})
		cl := dial(t, s)
		begin := time.Now()
		cl.send("PUBLISH\r\nPING\r\n") // no pusher is behind
		cl.expect("+SENT\r\n+PONG\r\n")
		s.pushers.fallBehind()
		cl.send("FEWER\r\nPING\r\n")
		cl.expect("+SENT\r\n+PONG\r\n")
		cl.send("PUBLISH\r\nPING\r\n")
		cl.expect("+SENT\r\n") // the replies to earlier commands do not wait
		cl.expectSilence()
		dial(t, s).call("PING\r\n", "+PONG\r\n")
		if d := time.Since(begin); d >= publishWait {
			t.Errorf("the clients waited %v although no wait was due", d)
		}
		s.pushers.catchUp()
		cl.expect("+PONG\r\n")
		if d := time.Since(begin); d >= publishWait {
			t.Errorf("the publisher waited %v although the pushers had caught up", d)
		}
		s.pushers.fallBehind()
		defer s.pushers.catchUp()
		begin = time.Now()
		cl.send("PUBLISH\r\nPING\r\n")
		cl.expect("+SENT\r\n+PONG\r\n")
		if d := time.Since(begin); d != publishWait {
			t.Errorf("the wait for pushers that send nothing lasted %v, want %v", d, publishWait)
		}
	})
}

func TestPushesThatAPusherCouldNotSendAtOnceAreSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: pubsub()})
		cl := dial(t, s)
		cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
		s.pushers.fallBehind()
		before := cl.counted.writes.Load()
		for range 3 {
			s.Broker().Publish("a", "x")
		}
		cl.expectSilence()
		s.pushers.catchUp()
		cl.expect(message("a", "x") + message("a", "x") + message("a", "x"))
		if n := cl.counted.writes.Load() - before; n != 1 {
			t.Errorf("the pushes took %d writes, want 1", n)
		}
	})
}

func TestAPusherThatWaitsForItsClientHoldsNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{}, &script{commands: pubsub()})
		var stuck []*client
		for range cap(s.pushers.slots) + 1 {
			cl := dial(t, s)
			cl.call("SUBSCRIBE a\r\n", confirmation("subscribe", "a", 1))
			stuck = append(stuck, cl)
		}
		cl := dial(t, s)
		cl.call("SUBSCRIBE b\r\n", confirmation("subscribe", "b", 1))
		s.Broker().Publish("a", "x") // these clients read nothing
		synctest.Wait()
		s.Broker().Publish("b", "x")
		cl.expect(message("b", "x"))
		for _, cl := range stuck {
			cl.expect(message("a", "x"))
		}
	})
}
