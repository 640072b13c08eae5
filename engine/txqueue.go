package engine

import (
	"cmp"
	"slices"

	"github.com/simba-resp/simba-resp"
)

// txQueue is the queue that a transaction changes. It copies a shared list before a change.
type txQueue struct {
	list  []simba.QueueMember // has removed members too
	index map[string]int      // index in list of each member; nil = not built yet
	own   bool                // list is not shared
	dirty bool                // list has removed members, or is not in order
}

func (q *txQueue) find(contender string) (int, bool) {
	if q.index == nil {
		q.index = make(map[string]int, len(q.list))
		for i, m := range q.list {
			q.index[m.Contender] = i
		}
	}
	i, ok := q.index[contender]
	return i, ok
}

func (q *txQueue) remove(contender string) {
	if _, ok := q.find(contender); ok {
		q.dirty = true
		delete(q.index, contender)
	}
}

// add puts a member behind all members with the same score.
func (q *txQueue) add(m simba.QueueMember) {
	q.remove(m.Contender)
	q.dirty = true
	if !q.own {
		q.list, q.own = slices.Clone(q.list), true
	}
	q.index[m.Contender] = len(q.list)
	q.list = append(q.list, m)
}

// inOrder returns the members in order.
func (q *txQueue) inOrder() []simba.QueueMember {
	if !q.dirty {
		return q.list
	}
	list := make([]simba.QueueMember, 0, len(q.index))
	for i, m := range q.list {
		if at, ok := q.index[m.Contender]; ok && at == i {
			list = append(list, m)
		}
	}
	slices.SortStableFunc(list, func(a, b simba.QueueMember) int { return cmp.Compare(a.Score, b.Score) })
	*q = txQueue{list: list, own: true}
	return list
}
