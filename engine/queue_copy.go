package engine

import (
	"cmp"
	"slices"

	"github.com/simba-resp/simba-resp"
)

// queueCopy is a copy of a queue that a transaction changes. The original does not change.
type queueCopy struct {
	list  []simba.Place
	index map[string]int // in list; nil until it is needed
	gone  map[int]bool   // indexes of entries that were removed
	own   bool           // list is not shared
	dirty bool           // list differs from the entries in order
}

func (p *queueCopy) find(contender string) (int, bool) {
	if p.index == nil {
		p.index = make(map[string]int, len(p.list))
		for i, x := range p.list {
			p.index[x.Contender] = i
		}
		p.gone = make(map[int]bool)
	}
	i, ok := p.index[contender]
	return i, ok
}

func (p *queueCopy) remove(contender string) {
	if i, ok := p.find(contender); ok {
		p.gone[i] = true
		p.dirty = true
		delete(p.index, contender)
	}
}

// add adds an entry behind all that have the same score.
func (p *queueCopy) add(x simba.Place) {
	p.remove(x.Contender)
	p.dirty = true
	if !p.own {
		p.list, p.own = slices.Clone(p.list), true
	}
	p.index[x.Contender] = len(p.list)
	p.list = append(p.list, x)
}

// inOrder returns the entries in order.
func (p *queueCopy) inOrder() []simba.Place {
	if !p.dirty {
		return p.list
	}
	list := make([]simba.Place, 0, len(p.index))
	for i, x := range p.list {
		if !p.gone[i] {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b simba.Place) int { return cmp.Compare(a.Score, b.Score) })
	*p = queueCopy{list: list, own: true}
	return list
}
