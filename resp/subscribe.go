package resp

// publication is a message on its way, encoded once for each version of RESP that
// a receiver speaks.
type publication struct {
	kind             Kind
	pattern          string // of kind Pattern
	channel, payload string
	encoded          [2][]byte
}

// frame returns the message in RESP3, or RESP2.
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
	case Pattern:
		w.Push(4)
		w.BulkString("pmessage")
		w.BulkString(p.pattern)
	case Shard:
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

// Confirm marks the reply to this command as a confirmation of subscriptions: it is sent in any ReplyMode.
func (c *Conn) Confirm() { c.confirms = true }

// Subscribe subscribes and reports whether that is new. The handler writes the
// confirmation to Reply: it is sent before the first message, and every message
// published after it was sent arrives.
func (c *Conn) Subscribe(kind Kind, name string) bool {
	c.hold()
	return c.server.broker.join(c, kind, name)
}

// Unsubscribe ends a subscription and reports whether there was one. No message of
// it is sent after the confirmation, which the handler writes to Reply.
func (c *Conn) Unsubscribe(kind Kind, name string) bool {
	c.hold()
	t := c.server.broker.part(c, kind, name)
	if t == nil {
		return false
	}
	c.push.forget(t)
	return true
}

// Subscriptions lists the names that the connection subscribed to, sorted. Any
// goroutine may call it.
func (c *Conn) Subscriptions(kind Kind) []string { return c.server.broker.names(c, kind) }

// SubscriptionCountOf is the number of subscriptions of one kind. Any goroutine may
// call it.
func (c *Conn) SubscriptionCountOf(kind Kind) int { return int(c.subscriptions[kind].Load()) }

// SubscriptionCount is the number of subscriptions of all kinds: not 0 means that a
// RESP2 client may send no ordinary commands. (The confirmation of a SUBSCRIBE or
// PSUBSCRIBE counts Channel and Pattern only, that of a SSUBSCRIBE Shard only.) Any
// goroutine may call it.
func (c *Conn) SubscriptionCount() int {
	n := 0
	for kind := range c.subscriptions {
		n += int(c.subscriptions[kind].Load())
	}
	return n
}
