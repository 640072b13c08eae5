package engine

import "github.com/simba-resp/simba-resp"

// SetKeyEvents implements simba.Keyspace.
func (e *Engine) SetKeyEvents(kinds simba.KeyEvents) { e.sequencer.keyEvents.Store(uint32(kinds)) }

// postKeyEvents adds Redis' keyspace notifications of a step to the unsent notices. It adds each
// notification for simba.KeyOf and for simba.TaggedKeyOf, if these differ. The caller holds mu.
func (q *sequencer) postKeyEvents(m *mutex, s *step, kinds simba.KeyEvents) {
	names := []string{simba.KeyOf(m.name())}
	if tagged := simba.TaggedKeyOf(m.name()); tagged != names[0] {
		names = append(names, tagged)
	}
	for _, event := range keyEvents(m, s) {
		if kinds&event.kind == 0 {
			continue
		}
		for _, name := range names {
			if kinds&simba.KeyEventsByKey != 0 {
				q.unsent = append(q.unsent, notice{after: q.seq, message: &message{"__keyspace@0__:" + name, event.name}})
			}
			if kinds&simba.KeyEventsByEvent != 0 {
				q.unsent = append(q.unsent, notice{after: q.seq, message: &message{"__keyevent@0__:" + event.name, name}})
			}
		}
	}
}

type keyEvent struct {
	kind simba.KeyEvents
	name string
}

var (
	keySet     = keyEvent{simba.KeyEventString, "set"}
	keyDel     = keyEvent{simba.KeyEventGeneric, "del"}
	keyExpire  = keyEvent{simba.KeyEventGeneric, "expire"}
	keyExpired = keyEvent{simba.KeyEventExpired, "expired"}
)

// keyEvents returns the keyspace notifications that Redis would send for a step that changed a
// lock.
func keyEvents(m *mutex, s *step) (list []keyEvent) {
	for _, e := range s.events {
		switch e.Kind {
		case simba.EventAcquired:
			list = append(list, keySet)
		case simba.EventExpired:
			list = append(list, keyExpired)
		case simba.EventReleased:
			list = append(list, keyDel)
		case simba.EventBroken:
			if e.Reason != reasonOverwritten {
				list = append(list, keyDel)
			}
		}
	}
	switch {
	case !m.owned():
	case s.renewed && m.end() != never:
		list = append(list, keyExpire)
	case len(list) == 0:
		list = append(list, keySet) // a new value or field, or the lease has become endless
	}
	return list
}
