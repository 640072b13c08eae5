package engine

import "github.com/simba-resp/simba-resp"

// deadlines is a heap with four children a node. It has the next deadlines of a shard's mutexes.
// The instants are beside the pointers, so that sifting stays in the processor's cache.
//
// A renewal gives a mutex a later deadline, but does not change the instant in the heap. So this
// instant may be earlier than the deadline, and is never later. When the early instant comes, the
// mutex moves to its present deadline.
type deadlines []due

type due struct {
	at simba.Instant
	m  *mutex
}

// set adds m to the heap with the instant at. If m is already in the heap, set replaces only a
// later instant.
func (h *deadlines) set(m *mutex, at simba.Instant) {
	switch {
	case m.slot < 0:
		*h = append(*h, due{at, m})
		m.slot = int32(len(*h) - 1)
		h.up(int(m.slot))
	case at < (*h)[m.slot].at:
		(*h)[m.slot].at = at
		h.up(int(m.slot))
	}
}

// postpone moves m to a later instant.
func (h *deadlines) postpone(m *mutex, at simba.Instant) {
	(*h)[m.slot].at = at
	h.down(int(m.slot))
}

func (h *deadlines) remove(m *mutex) {
	if m.slot < 0 {
		return
	}
	i, last := int(m.slot), len(*h)-1
	m.slot = -1
	moved := (*h)[last]
	(*h)[last] = due{}
	*h = (*h)[:last]
	if cap(*h) > 1024 && len(*h) < cap(*h)/8 {
		*h = append(make(deadlines, 0, cap(*h)/4), *h...)
	}
	if i == last {
		return
	}
	h.put(i, moved)
	h.up(i)
	h.down(int(moved.m.slot))
}

func (h deadlines) put(i int, d due) {
	h[i] = d
	d.m.slot = int32(i)
}

func (h deadlines) up(i int) {
	d := h[i]
	for i > 0 {
		parent := (i - 1) / 4
		if h[parent].at <= d.at {
			break
		}
		h.put(i, h[parent])
		i = parent
	}
	h.put(i, d)
}

func (h deadlines) down(i int) {
	d := h[i]
	for {
		first := 4*i + 1
		if first >= len(h) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(h)); c++ {
			if h[c].at < h[least].at {
				least = c
			}
		}
		if d.at <= h[least].at {
			break
		}
		h.put(i, h[least])
		i = least
	}
	h.put(i, d)
}
