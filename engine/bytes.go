package engine

import "github.com/simba-resp/simba-resp"

// The sizes of the parts of a mutex in bytes, without their strings. Each size includes the part's
// elements in maps and slices.
const (
	mutexBytes  = 128
	extraBytes  = 264
	entryBytes  = 192
	fieldBytes  = 48
	ticketBytes = 96
)

// Bytes implements simba.Keyspace.
func (e *Engine) Bytes() int64 { return e.bytes.Load() }

// LimitQueues implements simba.Keyspace.
func (e *Engine) LimitQueues(bytes int64) { e.queueLimit.Store(bytes) }

// queueFull reports whether the queue of the mutex takes no new entry.
func (e *Engine) queueFull(m *mutex) bool {
	limit := e.queueLimit.Load()
	return limit > 0 && m.extra != nil && int64(m.extra.queue.bytes()) >= limit
}

func (q *queue) bytes() int { return len(q.all)*entryBytes + q.names }

func bytesOf(fields []simba.Field) (n int) {
	for _, f := range fields {
		n += fieldBytes + len(f.Name) + len(f.Value)
	}
	return n
}

// bytes returns about how many bytes of memory the mutex takes.
func (m *mutex) bytes() int64 {
	n := mutexBytes + len(m.label)
	x := m.extra
	if x == nil {
		return int64(n)
	}
	n += extraBytes + x.queue.bytes() + x.weight
	if x.last != "" { // a substring of the label that the mutex had then, which stays in memory
		n += int(m.nameLen) + len(x.last)
	}
	if t := x.unconfirmed; t != nil {
		n += ticketBytes + len(t.mutex) + len(t.contender)
	}
	return int64(n)
}
