package resp

import "sync/atomic"

// publication is a published message, encoded at most once in each version of RESP.
type publication struct {
	kind             Kind
	pattern          string // only of KindPattern
	channel, payload string
	encoded          [2][]byte // in RESP2, in RESP3; nil = not encoded yet
}

func (p *publication) frame(resp3 bool) []byte {
	version := 0
	if resp3 {
		version = 1
	}
	if p.encoded[version] == nil {
		p.encoded[version] = p.encode(resp3)
	}
	return p.encoded[version]
}

func (p *publication) encode(resp3 bool) []byte {
	w := Writer{
		buf:   make([]byte, 0, 64+len(p.pattern)+len(p.channel)+len(p.payload)),
		resp3: resp3,
	}
	switch p.kind {
	case KindPattern:
		w.Push(4)
		w.BulkString("pmessage")
		w.BulkString(p.pattern)
	case KindShard:
		w.Push(3)
		w.BulkString("smessage")
	default:
		w.Push(3)
		w.BulkString("message")
	}
	w.BulkString(p.channel)
	w.BulkString(p.payload)
	return w.buf
}

// subscriptions are those of one connection.
type subscriptions struct {
	counts [kinds]atomic.Int32
	topics [kinds]map[string]*topic // protected by Broker.mu
}

// Subscribe adds a subscription and reports whether it is new. The handler must write the
// confirmation to Reply. After the confirmation the client receives every message that is published
// after this call.
func (c *Conn) Subscribe(kind Kind, name string) bool {
	c.HoldPushes()
	return c.server.cfg.Broker.subscribe(c, kind, name)
}

// Unsubscribe ends a subscription and reports whether there was one. The handler must write the
// confirmation to Reply. After the confirmation the client receives no message of the subscription.
func (c *Conn) Unsubscribe(kind Kind, name string) bool {
	c.HoldPushes()
	t := c.server.cfg.Broker.unsubscribe(c, kind, name)
	if t == nil {
		return false
	}
	c.push.dropTopic(t)
	return true
}

// Subscriptions returns the names of the subscriptions of one kind, sorted. Any goroutine may call
// it.
func (c *Conn) Subscriptions(kind Kind) []string { return c.server.cfg.Broker.names(c, kind) }

// SubscriptionCountOf returns the number of subscriptions of one kind. Any goroutine may call it.
func (s *subscriptions) SubscriptionCountOf(kind Kind) int { return int(s.counts[kind].Load()) }

// SubscriptionCount returns the number of subscriptions of all kinds. Confirmations show other
// numbers: those of SUBSCRIBE and PSUBSCRIBE count KindChannel and KindPattern, and those of
// SSUBSCRIBE count KindShard. Any goroutine may call it.
func (s *subscriptions) SubscriptionCount() int {
	n := 0
	for kind := range s.counts {
		n += int(s.counts[kind].Load())
	}
	return n
}
